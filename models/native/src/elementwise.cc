// The operator Elementwise: a program for every place of its inputs, which are repeated to a common shape. A stretch of
// numbers goes through the whole program while it lies in the fastest cache.
#include <cstring>
#include <vector>

#include "kernels.h"
#include "operator.h"
#include "program.h"
#include "sets.h"

using namespace runtime;

namespace {

// Numbers of a stretch: at least, and at most; and bytes of the fastest cache that all rows of a program may take.
constexpr long LEAST_STRETCH = 256, MOST_STRETCH = 2048, CACHE = 24 * 1024;

// Equal numbers one after the other that are a stretch, or several, of their own.
constexpr long LEAST_SPREAD = 256;

// Numbers that a thread takes at once, and steps times numbers from which on there is work for several.
constexpr long PART = 1 << 16;
constexpr double WORTH_A_THREAD = 1e6;

// An input that is repeated: axes that have numbers one after the other, or the same number, are one.
struct Repeated {
  Axes axes;
  int row;      // where a stretch of it is written
  long period;  // numbers of the result after which all is the same again; 0: never
  bool spread;  // its last axis has the same number so often that a stretch needs no more than one

  // The first axis is the outermost; `step` is that of the input, 0 where it is repeated.
  void write(float* out, const float* from, long start, long count) const {
    if (spread) count = 1;
    int64_t index[Axes::MOST];
    for (size_t i = axes.count; i > 0; start /= axes.size[--i]) {
      index[i - 1] = start % axes.size[i - 1];
      from += index[i - 1] * axes.step[i - 1];
    }
    const size_t inner = axes.count - 1;
    while (count > 0) {
      const long rest = axes.size[inner] - index[inner], run = rest < count ? rest : count;
      if (axes.step[inner]) memcpy(out, from, run * sizeof(float));
      else
        for (long i = 0; i < run; i++) out[i] = *from;
      out += run, count -= run, from += run * axes.step[inner], index[inner] += run;
      for (size_t i = inner; i > 0 && index[i] == axes.size[i]; i--) {
        from += axes.step[i - 1] - index[i] * axes.step[i];
        index[i] = 0, index[i - 1]++;
      }
    }
  }
};

// Where a value lies: of a stretch that begins at `start`, at data + start * moves.
struct Place {
  float* data;
  long moves;
  bool single;  // one number for all places
};

// What a thread keeps from one call to the next, so that small calls need not ask for memory.
struct Workspace {
  std::vector<float> rows;
  std::vector<long> phases;
};

// A sum along the last axes: `length` numbers become one.
struct Row {
  float* data;
  long length;
};

// One call of the operator.
struct Call {
  const Program* program = nullptr;
  std::vector<Tensor> inputs;
  std::vector<Place> places;       // of each value
  std::vector<Repeated> repeated;  // inputs that are written to rows before the steps
  std::vector<const float*> from;  // their numbers
  std::vector<Step> steps;
  std::vector<Row> sums;
  long count = 0, part = 0;     // numbers in all, and of a part
  long stretch = 0, spread = 0;  // numbers of a stretch at most; none goes beyond a multiple of the second
  float (*add_up)(const float*, long) = nullptr;

  void begin(const Program& its_program) {
    program = &its_program;
    inputs.resize(program->inputs), places.resize(program->values.size());
    repeated.clear(), from.clear(), steps.clear(), sums.clear(), spread = 0;
  }

  void run_part(long number) const {
    static thread_local Workspace workspace;
    std::vector<long>& phases = workspace.phases;
    const size_t numbers = (program->rows + repeated.size()) * stretch;
    if (workspace.rows.size() < numbers) workspace.rows.resize(numbers);
    phases.assign(repeated.size(), -1);
    const long end = (number + 1) * part < count ? (number + 1) * part : count;
    for (long start = number * part, next; start < end; start = next) {
      next = start + stretch < end ? start + stretch : end;
      if (spread && next > start / spread * spread + spread) next = start / spread * spread + spread;
      run_stretch(start, next - start, workspace.rows.data(), phases);
    }
  }

  void run_stretch(long start, long numbers, float* memory, std::vector<long>& phases) const {
    for (size_t i = 0; i < repeated.size(); i++) {
      const long phase = repeated[i].period ? start % repeated[i].period : -1;
      if (phase < 0 || phase != phases[i])
        repeated[i].write(memory + repeated[i].row * stretch, from[i], start, numbers);
      phases[i] = numbers == stretch ? phase : -1;
    }
    for (size_t s = 0; s < steps.size(); s++) {
      const Program::Instruction& one = program->steps[s];
      const float* operands[OPERANDS];
      for (int k = 0; k < one.kind->operands; k++) operands[k] = find(one.operands[k], start, memory);
      steps[s](find(one.result, start, memory), operands, numbers);
    }
    for (size_t s = 0; s < sums.size(); s++) {
      const int operand = program->sums[s].operand;
      put_sum(sums[s], find(operand, start, memory), places[operand].single, start, numbers);
    }
  }

  // Adds a stretch to the sums of the rows that it is part of. A row is of one part, so that only one thread adds to it.
  void put_sum(const Row& row, const float* from, bool single, long start, long numbers) const {
    for (long done = 0; done < numbers;) {
      const long at = (start + done) % row.length, rest = row.length - at;
      const long run = rest < numbers - done ? rest : numbers - done;
      const float found = single ? *from * run : add_up(from + done, run);
      float& sum = row.data[(start + done) / row.length];
      sum = at == 0 ? found : sum + found;
      done += run;
    }
  }

  // Rows have no place of their own: each thread has its memory for them.
  float* find(int value, long start, float* memory) const {
    const Place& place = places[value];
    return place.data ? place.data + start * place.moves : memory + place.moves * stretch;
  }
};

void run_part(void* call, size_t number) { ((const Call*)call)->run_part(number); }

// The common shape of the inputs.
Axes broadcast(const std::vector<Tensor>& inputs) {
  Axes found;
  for (const Tensor& input : inputs)
    if (input.axes.count > found.count) found.count = input.axes.count;
  for (size_t i = 0; i < found.count; i++) found.size[i] = 1;
  for (const Tensor& input : inputs)
    for (size_t place = 1; place <= input.axes.count; place++) {
      int64_t& size = found.size[found.count - place];
      const int64_t its_size = input.axes.size_from_end(place);
      if (its_size != 1 && size != 1 && its_size != size) throw Refused{"Elementwise: the shapes of the inputs differ"};
      if (its_size != 1) size = its_size;
    }
  found.lay_out();
  return found;
}

// The axes of `whole` with the steps of an input: neighbours that are one axis are put together.
Axes repeat(const Axes& input, const Axes& whole) {
  Axes found;
  for (size_t place = whole.count; place > 0; place--) {
    const int64_t size = whole.size_from_end(place);
    if (size == 1) continue;
    const int64_t step = input.size_from_end(place) == 1 ? 0 : input.step_from_end(place);
    if (found.count && found.step[found.count - 1] == step * size) {
      found.size[found.count - 1] *= size;
      found.step[found.count - 1] = step;
    } else {
      found.push(size, step);
    }
  }
  return found;
}

struct Elementwise {
  static constexpr int INPUTS = -1, OPTIONAL_INPUTS = 0, OUTPUTS = -1, SINCE = 1;
  static const char* name() { return "Elementwise"; }
  const Api* api;
  const Program program;

  Elementwise(const Api* its_api, const KernelInfo* info)
      : api(its_api), program(read_string(its_api, info, "program").c_str(), choose_set()->steps) {}

  void run(Context* context) const {
    static thread_local Call call;
    check_counts(context);
    call.begin(program);
    for (int i = 0; i < program.inputs; i++) call.inputs[i] = read(api, context, i);
    const Axes shape = broadcast(call.inputs);
    call.count = shape.numbers();
    place_others(call, context, shape);
    place_sums(call, context, shape);
    if (call.count == 0) return;
    for (int i = 0; i < program.inputs; i++) place_input(call, i, call.inputs[i], shape);
    choose_stretch(call);
    choose_steps(call);
    const long parts = (call.count + call.part - 1) / call.part;
    if (parts > 1 && (double)call.count * program.steps.size() > WORTH_A_THREAD)
      check(run_parts(api, context, run_part, parts, &call));
    else
      for (long i = 0; i < parts; i++) call.run_part(i);
  }

 private:
  void check_counts(const Context* context) const {
    size_t inputs = 0, outputs = 0;
    check(count_inputs(api, context, &inputs));
    check(count_outputs(api, context, &outputs));
    if ((int)inputs != program.inputs || (int)outputs != program.outputs)
      throw Refused{"Elementwise: the node has other inputs or outputs than its program"};
  }

  void place_input(Call& call, int number, const Tensor& input, const Axes& shape) const {
    const Axes axes = repeat(input.axes, shape);
    if (axes.count == 0 || (axes.count == 1 && axes.step[0] == 0)) {
      call.places[number] = {input.data, 0, true};
    } else if (axes.count == 1) {
      call.places[number] = {input.data, 1, false};
    } else {
      const int row = program.rows + (int)call.repeated.size();
      const bool spread = take_spread(call, axes);
      call.places[number] = {nullptr, row, spread};
      call.repeated.push_back({axes, row, axes.step[0] == 0 ? call.count / axes.size[0] : 0, spread});
      call.from.push_back(input.data);
    }
  }

  // True if stretches need one number of an input: those of all such inputs begin and end at the same places.
  bool take_spread(Call& call, const Axes& axes) const {
    const long size = axes.size[axes.count - 1];
    if (axes.step[axes.count - 1] || size < LEAST_SPREAD) return false;
    if (call.spread && size % call.spread && call.spread % size) return false;
    if (!call.spread || size < call.spread) call.spread = size;
    return true;
  }

  void place_others(Call& call, Context* context, const Axes& shape) const {
    for (size_t v = program.inputs; v < program.values.size(); v++) {
      const auto [role, place] = program.values[v];
      if (role == Program::CONSTANT) call.places[v] = {(float*)&program.constants[place], 0, true};
      else if (role == Program::SUM) continue;
      else if (role == Program::OUTPUT) call.places[v] = {write(api, context, place, shape), 1, false};
      else call.places[v] = {nullptr, place, false};
    }
  }

  void place_sums(Call& call, Context* context, const Axes& shape) const {
    for (const Program::Sum& sum : program.sums) {
      if (sum.axes > (int)shape.count) throw Refused{"Elementwise: a sum goes along more axes than there are"};
      Axes kept = shape;
      kept.count -= sum.axes;
      float* data = write(api, context, sum.output, kept);
      for (long i = 0; call.count == 0 && i < kept.numbers(); i++) data[i] = 0;
      call.sums.push_back({data, call.count == 0 ? 1 : call.count / kept.numbers()});
    }
  }

  // As many numbers as the cache has room for; whole periods of what is repeated, where they fit, so that it is written
  // once.
  void choose_stretch(Call& call) const {
    const long rows = program.rows + (long)call.repeated.size() + 2;
    long most = CACHE / (long)sizeof(float) / rows / 64 * 64;
    most = most < LEAST_STRETCH ? LEAST_STRETCH : most > MOST_STRETCH ? MOST_STRETCH : most;
    long period = 1;
    for (const Repeated& one : call.repeated)
      if (!one.spread && one.period <= most && one.period > period) period = one.period;
    const long pieces = (call.spread + most - 1) / most;  // of equal size, but for whole vectors
    call.stretch = pieces ? (call.spread + pieces - 1) / pieces : most / period * period;
    call.part = PART / call.stretch * call.stretch;
    for (const Row& row : call.sums)  // of several rows each is a part of the longest
      if (call.part % row.length) call.part = (call.part + row.length - 1) / row.length * row.length;
  }

  void choose_steps(Call& call) const {
    for (const Program::Instruction& one : program.steps) {
      int singles = 0;
      for (int k = 0; k < one.kind->operands; k++) singles |= call.places[one.operands[k]].single << k;
      call.steps.push_back(one.kind->steps[singles]);
    }
    call.add_up = choose_set()->add_up;
  }
};

}  // namespace

const Operator elementwise = Described<Elementwise>::describe();
