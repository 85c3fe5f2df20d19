// The operators of recurrent layers: a whole loop over time each, forwards (LstmLoop, GruLoop) or the loop of its
// adjoints (LstmLoopGradient, GruLoopGradient). What is computed is said in recurrent.h.
//
// The products with the inputs of all steps, and those that give the gradients of the weights, are not part of them:
// outside of the loop they are large. Attribute `backwards` 1: from the last step to the first.
#include "recurrent.h"

#include <new>

#include "kernels.h"
#include "operator.h"
#include "sets.h"
#include "work.h"

using namespace runtime;

namespace {

constexpr std::align_val_t LINE{64};  // of the cache

// Memory for numbers.
struct Room {
  explicit Room(int64_t count) : numbers((float*)operator new(multiply_sizes(count + 1, sizeof(float)), LINE)) {}
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room() { operator delete(numbers, LINE); }
  float* numbers;
};

// The rows of a loop in parts, which threads take.
template <typename Given>
struct Parts {
  const Given& given;
  void (*run)(const Given&, long first, long last);
  long each;

  void run_part(long number) const {
    const long first = number * each, rows = given.loop.rows;
    run(given, first, first + each < rows ? first + each : rows);
  }
};

// A recurrent matrix as a loop multiplies with it: (depth, columns), and the numbers from one row, and column, to the
// next.
struct Matrix {
  const float* data;
  long row, column, depth, columns;
};

template <typename Given>
void run_loop(const Api* api, const Context* context, Given& given, void (*run)(const Given&, long, long),
              const Matrix& r) {
  const Loops& set = *choose_set()->loops;
  Loop& loop = given.loop;
  if (loop.rows == 0 || loop.hidden == 0) return;
  const Room packed(set.count_packed(r.depth, r.columns));
  const Room scratch(multiply_sizes(set.count_packed(1, r.columns), loop.rows));
  set.pack(r.data, r.row, r.column, r.depth, r.columns, packed.numbers);
  loop.packed = packed.numbers, loop.scratch = scratch.numbers;
  const Parts<Given> parts = {given, run, set.part};
  const double operations = 2.0 * loop.steps * loop.rows * r.depth * r.columns;
  run_in_parts(api, context, parts, (loop.rows + set.part - 1) / set.part, operations);
}

// A call of an operator: its sizes are those of one input, and all other inputs have to fit.
struct Call {
  const Api* api;
  Context* context;
  const char* misfit;  // what is said of shapes that do not fit
  long gates;          // of a step
  int64_t steps = 0, rows = 0, hidden = 0;

  // Takes the sizes from an input (T, N, parts * H).
  void measure(size_t number, long parts) {
    const Axes axes = ::read(api, context, number).axes;
    if (axes.count != 3 || axes.size[2] % parts != 0) throw Refused{misfit};
    steps = axes.size[0], rows = axes.size[1], hidden = axes.size[2] / parts;
  }

  const float* read(size_t number, std::initializer_list<int64_t> sizes) const {
    const Tensor found = ::read(api, context, number);
    bool fits = found.is_there && found.axes.count == sizes.size();
    for (size_t i = 0; fits && i < sizes.size(); i++) fits = found.axes.size[i] == sizes.begin()[i];
    if (!fits) throw Refused{misfit};
    return found.data;
  }

  const float* read_state(size_t number) const { return read(number, {rows, hidden}); }
  const float* read_steps(size_t number, long parts = 1) const { return read(number, {steps, rows, parts * hidden}); }
  const float* read_weights(size_t number) const { return read(number, {gates * hidden, hidden}); }

  float* write(size_t number, std::initializer_list<int64_t> sizes) const {
    Axes axes;
    for (int64_t size : sizes) axes.push(size, 0);
    return ::write(api, context, number, axes);
  }

  float* write_state(size_t number) const { return write(number, {rows, hidden}); }
  float* write_steps(size_t number, long parts = 1) const { return write(number, {steps, rows, parts * hidden}); }

  Loop describe(bool backwards) const { return {steps, rows, hidden, backwards, nullptr, nullptr}; }

  // The recurrent weights (gates * H, H) as the loop multiplies with them, and as that of the adjoints does.
  Matrix turn(const float* r) const { return {r, 1, hidden, hidden, gates * hidden}; }
  Matrix keep(const float* r) const { return {r, hidden, 1, gates * hidden, hidden}; }
};

// What the operators have in common.
struct Kernel {
  static constexpr int OPTIONAL_INPUTS = 0, SINCE = 1;
  const Api* api;
  int64_t backwards = 0;

  Kernel(const Api* its_api, const KernelInfo* info) : api(its_api) {
    read_attribute<float>(api, info, "backwards", &backwards);
  }
};

// Inputs: h0, c0, gx, r. Outputs: last_h, last_c, iof, m, tanh_c, before, h.
struct LstmLoop : Kernel {
  static constexpr int INPUTS = 4, OUTPUTS = 7;
  static const char* name() { return "LstmLoop"; }
  using Kernel::Kernel;

  void run(Context* context) const {
    Call call = {api, context, "LstmLoop: the shapes of the inputs do not fit each other", 4};
    call.measure(2, 4);
    Lstm p = {};
    p.loop = call.describe(backwards);
    p.h0 = call.read_state(0), p.c0 = call.read_state(1), p.gx = call.read_steps(2, 4);
    const Matrix r = call.turn(call.read_weights(3));
    p.last_h = call.write_state(0), p.last_c = call.write_state(1), p.iof = call.write_steps(2, 3);
    p.m = call.write_steps(3), p.tanh_c = call.write_steps(4), p.before = call.write_steps(5);
    p.h = call.write_steps(6);
    run_loop(api, context, p, choose_set()->loops->lstm, r);
  }
};

// Inputs: dh, dc, dy, iof, m, tanh_c, before, r. Outputs: dh0, dc0, gates.
struct LstmLoopGradient : Kernel {
  static constexpr int INPUTS = 8, OUTPUTS = 3;
  static const char* name() { return "LstmLoopGradient"; }
  using Kernel::Kernel;

  void run(Context* context) const {
    Call call = {api, context, "LstmLoopGradient: the shapes of the inputs do not fit each other", 4};
    call.measure(2, 1);
    LstmGradient p = {};
    p.loop = call.describe(backwards);
    p.dh = call.read_state(0), p.dc = call.read_state(1), p.dy = call.read_steps(2), p.iof = call.read_steps(3, 3);
    p.m = call.read_steps(4), p.tanh_c = call.read_steps(5), p.before = call.read_steps(6);
    const Matrix r = call.keep(call.read_weights(7));
    p.dh0 = call.write_state(0), p.dc0 = call.write_state(1), p.gates = call.write_steps(2, 4);
    run_loop(api, context, p, choose_set()->loops->lstm_gradient, r);
  }
};

// Inputs: h0, gx, r, bh. Outputs: last_h, zr, m, ghm, h.
struct GruLoop : Kernel {
  static constexpr int INPUTS = 4, OUTPUTS = 5;
  static const char* name() { return "GruLoop"; }
  using Kernel::Kernel;

  void run(Context* context) const {
    Call call = {api, context, "GruLoop: the shapes of the inputs do not fit each other", 3};
    call.measure(1, 3);
    Gru p = {};
    p.loop = call.describe(backwards);
    p.h0 = call.read_state(0), p.gx = call.read_steps(1, 3), p.bh = call.read(3, {3 * call.hidden});
    const Matrix r = call.turn(call.read_weights(2));
    p.last_h = call.write_state(0), p.zr = call.write_steps(1, 2), p.m = call.write_steps(2);
    p.ghm = call.write_steps(3), p.h = call.write_steps(4);
    run_loop(api, context, p, choose_set()->loops->gru, r);
  }
};

// Inputs: dh, dy, zr, m, ghm, before, r. Outputs: dh0, dgh, dgx.
struct GruLoopGradient : Kernel {
  static constexpr int INPUTS = 7, OUTPUTS = 3;
  static const char* name() { return "GruLoopGradient"; }
  using Kernel::Kernel;

  void run(Context* context) const {
    Call call = {api, context, "GruLoopGradient: the shapes of the inputs do not fit each other", 3};
    call.measure(1, 1);
    GruGradient p = {};
    p.loop = call.describe(backwards);
    p.dh = call.read_state(0), p.dy = call.read_steps(1), p.zr = call.read_steps(2, 2), p.m = call.read_steps(3);
    p.ghm = call.read_steps(4), p.before = call.read_steps(5);
    const Matrix r = call.keep(call.read_weights(6));
    p.dh0 = call.write_state(0), p.dgh = call.write_steps(1, 3), p.dgx = call.write_steps(2, 3);
    run_loop(api, context, p, choose_set()->loops->gru_gradient, r);
  }
};

}  // namespace

const Operator lstm_loop = Described<LstmLoop>::describe();
const Operator lstm_loop_gradient = Described<LstmLoopGradient>::describe();
const Operator gru_loop = Described<GruLoop>::describe();
const Operator gru_loop_gradient = Described<GruLoopGradient>::describe();
