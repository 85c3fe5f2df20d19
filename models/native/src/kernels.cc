#include "kernels.h"

#include <cstring>

#include "batch.h"
#include "operator.h"
#include "sets.h"
#include "work.h"

using namespace runtime;

namespace {

struct Attributes {
  int64_t swap_a = 0, swap_b = 0;  // transA, transB
  float alpha = 1, beta = 1;
};

// Computes all products; C is as long as `numbers`.
void run_all(const Api* api, const Context* context, Batch& batch, int64_t numbers) {
  if (numbers == 0) return;
  if (batch.first.depth == 0) {
    memset(batch.first.c, 0, numbers * sizeof(float));
    return;
  }
  batch.multiply = choose_set()->multiply;
  run_in_parts(api, context, batch, batch.count_parts(), batch.count_operations());
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

void run_matmul(const Api* api, Context* context) {
  Tensor a = read(api, context, 0), b = read(api, context, 1);
  const bool has_rows = a.axes.count > 1, has_columns = b.axes.count > 1;
  if (a.axes.count == 0 || b.axes.count == 0) throw Refused{"MatMul: A and B have one axis at least"};
  if (!has_columns) b.axes.push(1, 0);  // a column
  if (a.axes.size_from_end(1) != b.axes.size_from_end(2)) throw Refused{"MatMul: the inner sizes of A and B differ"};
  Batch batch;
  broadcast(a.axes, b.axes, batch.outer_a, batch.outer_b);
  Axes result = batch.outer_a;
  if (has_rows) result.push(a.axes.size_from_end(2), 0);
  if (has_columns) result.push(b.axes.size_from_end(1), 0);
  float* c = write(api, context, 0, result);
  batch.first = describe_product(a, b, c, 1);
  batch.merge_rows();
  run_all(api, context, batch, result.numbers());
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

void run_gemm(const Api* api, Context* context, const Attributes& given) {
  Tensor a = read(api, context, 0), b = read(api, context, 1);
  const Tensor bias = read_bias(api, context);
  if (a.axes.count != 2 || b.axes.count != 2) throw Refused{"Gemm: A and B have two axes"};
  if (given.swap_a) a.axes.swap_last();
  if (given.swap_b) b.axes.swap_last();
  if (a.axes.size[1] != b.axes.size[0]) throw Refused{"Gemm: the inner sizes of A and B differ"};
  Axes result;
  result.push(a.axes.size[0], 0), result.push(b.axes.size[1], 0);
  const bool adds = bias.is_there && given.beta != 0;  // as ONNX has it: with a factor of 0 C is not looked at
  if (bias.is_there) check_bias(bias.axes, result.size[0], result.size[1]);
  Batch batch;
  batch.first = describe_product(a, b, write(api, context, 0, result), given.alpha);
  const bool is_row = bias.axes.size_from_end(2) == 1 && bias.axes.size_from_end(1) == result.size[1];
  const bool with_product = adds && is_row && given.beta == 1 && batch.first.depth > 0;
  if (with_product) batch.first.bias = bias.data;
  run_all(api, context, batch, result.numbers());
  if (adds && !with_product) add_bias(bias, given.beta, batch.first);
}

Attributes read_attributes(const Api* api, const KernelInfo* info) {
  Attributes found;
  read_attribute<float>(api, info, "transA", &found.swap_a);
  read_attribute<float>(api, info, "transB", &found.swap_b);
  read_attribute<int64_t>(api, info, "alpha", &found.alpha);
  read_attribute<int64_t>(api, info, "beta", &found.beta);
  return found;
}

// Since version 13 of ONNX both are what they are here.
struct Matmul {
  static constexpr int INPUTS = 2, OPTIONAL_INPUTS = 0, OUTPUTS = 1, SINCE = 13;
  static const char* name() { return "MatMul"; }
  const Api* api;

  Matmul(const Api* its_api, const KernelInfo*) : api(its_api) {}
  void run(Context* context) const { run_matmul(api, context); }
};

struct Gemm {
  static constexpr int INPUTS = 3, OPTIONAL_INPUTS = 1, OUTPUTS = 1, SINCE = 13;
  static const char* name() { return "Gemm"; }
  const Api* api;
  Attributes given;

  Gemm(const Api* its_api, const KernelInfo* info) : api(its_api), given(read_attributes(its_api, info)) {}
  void run(Context* context) const { run_gemm(api, context, given); }
};

}  // namespace

const Operator matmul = Described<Matmul>::describe();
const Operator gemm = Described<Gemm>::describe();
