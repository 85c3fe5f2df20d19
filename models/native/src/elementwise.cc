// The operator Elementwise: a program for every place of its inputs, which are repeated to a common shape.
#include "program_run.h"
#include "kernels.h"
#include "operator.h"
#include "work.h"

using namespace runtime;

namespace {

// What a step costs, in multiplications and additions of a product.
constexpr double STEP = 4;

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
    static thread_local ProgramRun run;
    check_counts(context);
    run.begin(program);
    for (int i = 0; i < program.inputs; i++)
      if (!(run.inputs[i] = read(api, context, i)).is_there) throw Refused{"Elementwise: an input has no name"};
    const Axes shape = broadcast(run.inputs);
    run.count = shape.numbers();
    place_others(run, context, shape);
    place_sums(run, context, shape);
    if (run.count == 0) return;
    for (int i = 0; i < program.inputs; i++) place_input(run, i, run.inputs[i], shape);
    run.choose_stretch();
    run.choose_steps();
    const long parts = (run.count + run.part - 1) / run.part;
    run_in_parts(api, context, run, parts, STEP * run.count * program.steps.size());
  }

 private:
  void check_counts(const Context* context) const {
    size_t inputs = 0, outputs = 0;
    check(count_inputs(api, context, &inputs));
    check(count_outputs(api, context, &outputs));
    if ((int)inputs != program.inputs || (int)outputs != program.outputs)
      throw Refused{"Elementwise: the node has other inputs or outputs than its program"};
  }

  void place_input(ProgramRun& run, int number, const Tensor& input, const Axes& shape) const {
    const Axes axes = repeat(input.axes, shape);
    if (axes.count == 0 || (axes.count == 1 && axes.step[0] == 0)) {
      run.places[number] = {input.data, 0, true};
    } else if (axes.count == 1) {
      run.places[number] = {input.data, 1, false};
    } else {
      const int row = program.rows + (int)run.repeated.size();
      const bool spread = take_spread(run, axes);
      run.places[number] = {nullptr, row, spread};
      run.repeated.push_back({axes, row, axes.step[0] == 0 ? run.count / axes.size[0] : 0, spread});
      run.from.push_back(input.data);
    }
  }

  // True if stretches need one number of an input: those of all such inputs begin and end at the same places.
  bool take_spread(ProgramRun& run, const Axes& axes) const {
    const long size = axes.size[axes.count - 1];
    if (axes.step[axes.count - 1] || size < LEAST_SPREAD) return false;
    if (run.spread && size % run.spread && run.spread % size) return false;
    if (!run.spread || size < run.spread) run.spread = size;
    return true;
  }

  void place_others(ProgramRun& run, Context* context, const Axes& shape) const {
    for (size_t v = program.inputs; v < program.values.size(); v++) {
      const auto [role, place] = program.values[v];
      if (role == Program::CONSTANT) run.places[v] = {(float*)&program.constants[place], 0, true};
      else if (role == Program::SUM) continue;
      else if (role == Program::OUTPUT) run.places[v] = {write(api, context, place, shape), 1, false};
      else run.places[v] = {nullptr, place, false};
    }
  }

  void place_sums(ProgramRun& run, Context* context, const Axes& shape) const {
    for (const Program::Sum& sum : program.sums) {
      if (sum.axes > (int)shape.count) throw Refused{"Elementwise: a sum goes along more axes than there are"};
      Axes kept = shape;
      kept.count -= sum.axes;
      float* data = write(api, context, sum.output, kept);
      for (long i = 0; run.count == 0 && i < kept.numbers(); i++) data[i] = 0;
      run.sums.push_back({data, run.count == 0 ? 1 : run.count / kept.numbers()});
    }
  }
};

}  // namespace

const Operator elementwise = Described<Elementwise>::describe();
