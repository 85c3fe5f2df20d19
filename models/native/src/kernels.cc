#include "kernels.h"

#include <cstring>
#include <new>

#include "batch.h"
#include "sets.h"

using namespace runtime;

namespace {

constexpr double WORTH_A_THREAD = 4e6;  // multiplications and additions; fewer are done by the caller

struct Attributes {
  int64_t swap_a = 0, swap_b = 0;  // transA, transB
  float alpha = 1, beta = 1;
};

struct Kernel {
  const Api* api;
  Attributes given;
};

// A status of onnxruntime's that is handed on.
struct Failed {
  Status* status;
};

void check(Status* status) {
  if (status) throw Failed{status};
}

struct Tensor {
  bool is_there = false;
  float* data = nullptr;
  Axes axes;
};

Axes read_axes(const Api* api, const Value* value) {
  Shape* shape = nullptr;
  check(get_shape(api, value, &shape));
  Axes found;
  size_t rank = 0;
  Status* status = get_rank(api, shape, &rank);
  const bool fits = rank <= Axes::MOST;
  if (!status && fits) status = get_sizes(api, shape, found.size, rank);
  release_shape(api, shape);
  check(status);
  if (!fits) throw Refused{"a product of matrices has more than 16 axes"};
  found.count = rank;
  for (size_t i = 0; i < rank; i++)
    if (found.size[i] < 0) throw Refused{"a product of matrices has an axis of negative size"};
  found.lay_out();
  return found;
}

Tensor read(const Api* api, const Context* context, size_t number) {
  const Value* value = nullptr;
  check(get_input(api, context, number, &value));
  if (!value) return {};
  Tensor found;
  found.is_there = true;
  found.axes = read_axes(api, value);
  check(get_data(api, value, &found.data));
  return found;
}

float* write(const Api* api, Context* context, const Axes& axes) {
  multiply_sizes(axes.numbers(), sizeof(float));
  Value* value = nullptr;
  check(get_output(api, context, 0, axes.size, axes.count, &value));
  float* data = nullptr;
  check(get_data(api, value, &data));
  return data;
}

void run_part(void* batch, size_t number) { ((const Batch*)batch)->run_part(number); }

// Computes all products; C is as long as `numbers`.
void run_all(const Api* api, const Context* context, Batch& batch, int64_t numbers) {
  if (numbers == 0) return;
  if (batch.first.depth == 0) {
    memset(batch.first.c, 0, numbers * sizeof(float));
    return;
  }
  batch.multiply = choose_set()->multiply;
  const long parts = batch.count_parts();
  if (parts > 1 && batch.count_operations() > WORTH_A_THREAD)
    check(run_parts(api, context, run_part, parts, &batch));
  else
    for (long i = 0; i < parts; i++) batch.run_part(i);
}

// The product of the last two axes of A and B, into C.
Product describe_product(const Tensor& a, const Tensor& b, float* c, float alpha) {
  Product p = {};
  p.a = a.data, p.a_row = a.axes.step_from_end(2), p.a_column = a.axes.step_from_end(1);
  p.b = b.data, p.b_row = b.axes.step_from_end(2), p.b_column = b.axes.step_from_end(1);
  p.rows = a.axes.size_from_end(2), p.columns = b.axes.size_from_end(1), p.depth = a.axes.size_from_end(1);
  p.c = c, p.alpha = alpha;
  return p;
}

// The outer axes of A and B, each repeated where it has 1 and the other has more.
void broadcast(const Axes& a, const Axes& b, Axes& outer_a, Axes& outer_b) {
  for (size_t place = a.count > b.count ? a.count : b.count; place > 2; place--) {
    const int64_t x = a.size_from_end(place), y = b.size_from_end(place);
    if (x != y && x != 1 && y != 1) throw Refused{"MatMul: the outer sizes of A and B differ"};
    const int64_t size = x == 1 ? y : x;
    outer_a.push(size, x == 1 ? 0 : a.step_from_end(place));
    outer_b.push(size, y == 1 ? 0 : b.step_from_end(place));
  }
}

void run_matmul(const Kernel& k, Context* context) {
  Tensor a = read(k.api, context, 0), b = read(k.api, context, 1);
  const bool has_rows = a.axes.count > 1, has_columns = b.axes.count > 1;
  if (a.axes.count == 0 || b.axes.count == 0) throw Refused{"MatMul: A and B have one axis at least"};
  if (!has_columns) b.axes.push(1, 0);  // a column
  if (a.axes.size_from_end(1) != b.axes.size_from_end(2)) throw Refused{"MatMul: the inner sizes of A and B differ"};
  Batch batch;
  broadcast(a.axes, b.axes, batch.outer_a, batch.outer_b);
  Axes result = batch.outer_a;
  if (has_rows) result.push(a.axes.size_from_end(2), 0);
  if (has_columns) result.push(b.axes.size_from_end(1), 0);
  float* c = write(k.api, context, result);
  batch.first = describe_product(a, b, c, 1);
  batch.merge_rows();
  run_all(k.api, context, batch, result.numbers());
}

// C of Gemm: (rows, columns), or 1 or nothing in place of either.
void check_bias(const Axes& axes, int64_t rows, int64_t columns) {
  const int64_t down = axes.size_from_end(2), across = axes.size_from_end(1);
  if (axes.count > 2 || (down != 1 && down != rows) || (across != 1 && across != columns))
    throw Refused{"Gemm: C does not fit A and B"};
}

void add_bias(const Tensor& bias, float beta, const Product& p) {
  const int64_t down = bias.axes.size_from_end(2) == 1 ? 0 : bias.axes.step_from_end(2);
  const int64_t across = bias.axes.size_from_end(1) == 1 ? 0 : bias.axes.step_from_end(1);
  for (long i = 0; i < p.rows; i++)
    for (long j = 0; j < p.columns; j++) p.c[i * p.columns + j] += beta * bias.data[i * down + j * across];
}

Tensor read_bias(const Api* api, const Context* context) {
  size_t inputs = 0;
  check(count_inputs(api, context, &inputs));
  return inputs > 2 ? read(api, context, 2) : Tensor{};
}

void run_gemm(const Kernel& k, Context* context) {
  Tensor a = read(k.api, context, 0), b = read(k.api, context, 1);
  const Tensor bias = read_bias(k.api, context);
  if (a.axes.count != 2 || b.axes.count != 2) throw Refused{"Gemm: A and B have two axes"};
  if (k.given.swap_a) a.axes.swap_last();
  if (k.given.swap_b) b.axes.swap_last();
  if (a.axes.size[1] != b.axes.size[0]) throw Refused{"Gemm: the inner sizes of A and B differ"};
  Axes result;
  result.push(a.axes.size[0], 0), result.push(b.axes.size[1], 0);
  const bool adds = bias.is_there && k.given.beta != 0;  // as ONNX has it: with a factor of 0 C is not looked at
  if (bias.is_there) check_bias(bias.axes, result.size[0], result.size[1]);
  Batch batch;
  batch.first = describe_product(a, b, write(k.api, context, result), k.given.alpha);
  const bool is_row = bias.axes.size_from_end(2) == 1 && bias.axes.size_from_end(1) == result.size[1];
  const bool with_product = adds && is_row && k.given.beta == 1 && batch.first.depth > 0;
  if (with_product) batch.first.bias = bias.data;
  run_all(k.api, context, batch, result.numbers());
  if (adds && !with_product) add_bias(bias, k.given.beta, batch.first);
}

Status* get_attribute(const Api* api, const KernelInfo* info, const char* name, int64_t* found) {
  return get_integer(api, info, name, found);
}
Status* get_attribute(const Api* api, const KernelInfo* info, const char* name, float* found) {
  return get_float(api, info, name, found);
}

// False if there is no such attribute of this type.
template <typename Number>
bool has_attribute(const Api* api, const KernelInfo* info, const char* name, Number* found) {
  Status* status = get_attribute(api, info, name, found);
  if (status) release_status(api, status);
  return !status;
}

// Reads an attribute where there is one. Nobody else has checked that it is of the right type.
template <typename Other, typename Number>
void read_attribute(const Api* api, const KernelInfo* info, const char* name, Number* found) {
  Number value;
  Other other;
  if (has_attribute(api, info, name, &value)) *found = value;
  else if (has_attribute(api, info, name, &other)) throw Refused{"an attribute of a product is not of its type"};
}

Attributes read_attributes(const Api* api, const KernelInfo* info) {
  Attributes found;
  read_attribute<float>(api, info, "transA", &found.swap_a);
  read_attribute<float>(api, info, "transB", &found.swap_b);
  read_attribute<int64_t>(api, info, "alpha", &found.alpha);
  read_attribute<int64_t>(api, info, "beta", &found.beta);
  return found;
}

// Calls `run`, and makes a status of what it throws: nothing else may reach onnxruntime.
template <typename Run>
Status* guard(const Api* api, Run run) noexcept {
  try {
    run();
    return nullptr;
  } catch (const Failed& failed) {
    return failed.status;
  } catch (const Refused& refused) {
    return create_status(api, refused.why);
  } catch (const std::bad_alloc&) {
    return create_status(api, "a product of matrices ran out of memory");
  } catch (...) {
    return create_status(api, "a product of matrices failed");
  }
}

Status* create(const Operator*, const Api* api, const KernelInfo* info, void** found) {
  return guard(api, [&] { *found = new Kernel{api, read_attributes(api, info)}; });
}

template <void (*RUN)(const Kernel&, Context*)>
Status* compute(void* kernel, Context* context) {
  const Kernel& k = *(const Kernel*)kernel;
  return guard(k.api, [&] { RUN(k, context); });
}

void destroy(void* kernel) { delete (Kernel*)kernel; }

// The versions of the operators' domains for which these are: since 13 MatMul and Gemm are what they are.
int since_13(const Operator*) { return 13; }
int for_ever(const Operator*) { return 1000; }

size_t two(const Operator*) { return 2; }
size_t three(const Operator*) { return 3; }

template <typename Run>
Operator describe(const char* (*name)(const Operator*), size_t (*inputs)(const Operator*), Run run,
                  int (*start_version)(const Operator*)) {
  Operator one = {};
  one.version = VERSION;
  one.name = name;
  one.provider = [](const Operator*) -> const char* { return nullptr; };  // the processor
  one.input_type = one.output_type = [](const Operator*, size_t) { return FLOAT; };
  one.inputs = inputs;
  one.outputs = [](const Operator*) -> size_t { return 1; };
  one.input_presence = [](const Operator*, size_t number) { return number < 2 ? REQUIRED : OPTIONAL; };
  one.output_presence = [](const Operator*, size_t) { return REQUIRED; };
  one.input_memory = [](const Operator*, size_t) { return 0; };
  one.create_or_fail = create;
  one.compute_or_fail = run;
  one.destroy = destroy;
  one.start_version = start_version;
  one.end_version = for_ever;
  return one;
}

}  // namespace

const Operator matmul = describe([](const Operator*) { return "MatMul"; }, two, compute<run_matmul>, since_13);
const Operator gemm = describe([](const Operator*) { return "Gemm"; }, three, compute<run_gemm>, since_13);
