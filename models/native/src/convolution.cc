// The operator ConvWeightGradient: the gradient of a convolution's weights, from its input and its output's adjoint.
//
// Inputs: x (B, C, *sizes) and gy (B, O, *positions), of one or two axes of positions. Output: gw (O, C / group,
// *kernel). Attributes of each axis, numbered from 0: kernel_0, stride_0, dilation_0, before_0 (padding), and `group`.
#include <cstring>

#include "kernels.h"
#include "operator.h"
#include "sets.h"
#include "work.h"

using namespace runtime;

namespace {

// Columns of each group, in parts.
struct Columns {
  WeightGradient given;
  void (*run)(const WeightGradient&, long group, long first, long last);

  long count() const { return given.channels * given.high.taps * given.wide.taps; }
  long count_parts() const { return (count() + PART_COLUMNS - 1) / PART_COLUMNS; }

  void run_part(long number) const {
    const long parts = count_parts(), first = number % parts * PART_COLUMNS, columns = count();
    run(given, number / parts, first, first + PART_COLUMNS < columns ? first + PART_COLUMNS : columns);
  }
};

struct ConvWeightGradient {
  static constexpr int INPUTS = 2, OPTIONAL_INPUTS = 0, OUTPUTS = 1, SINCE = 1;
  static const char* name() { return "ConvWeightGradient"; }
  const Api* api;
  int64_t group = 1;
  WindowAxis axes[2];

  ConvWeightGradient(const Api* its_api, const KernelInfo* info) : api(its_api) {
    read_attribute<float>(api, info, "group", &group);
    for (int i = 0; i < 2; i++) axes[i] = read_axis(info, i);
    if (group < 1) throw Refused{"ConvWeightGradient: a group is one channel at least"};
  }

  void run(Context* context) const {
    const Tensor x = read(api, context, 0), gy = read(api, context, 1);
    check_shapes(x.axes, gy.axes);
    const bool plane = x.axes.count == 4;
    Columns columns = {{}, choose_set()->find_weight_gradient};
    WeightGradient& w = columns.given;
    w.x = x.data, w.gy = gy.data, w.batch = x.axes.size[0], w.groups = group;
    w.channels = x.axes.size[1] / group, w.outputs = gy.axes.size[1] / group;
    w.high = plane ? measure(axes[0], x.axes.size[2], gy.axes.size[2]) : WindowAxis{1, 1, 1, 1, 1, 0};
    w.wide = measure(axes[plane], x.axes.size_from_end(1), gy.axes.size_from_end(1));
    Axes result;
    result.push(gy.axes.size[1], 0), result.push(w.channels, 0);
    if (plane) result.push(w.high.taps, 0);
    result.push(w.wide.taps, 0);
    w.gw = write(api, context, 0, result);
    check_reach(w.high, 2.0 * w.wide.size + 2), check_reach(w.wide, 1);
    join_axes(w);
    run_all(context, columns, result.numbers());
  }

 private:
  WindowAxis read_axis(const KernelInfo* info, int number) const {
    int64_t taps = 1, stride = 1, dilation = 1, before = 0;
    char name[] = "kernel_0\0stride_0\0dilation_0\0before_0";
    int64_t* const each[] = {&taps, &stride, &dilation, &before};
    char* one = name;
    for (int64_t* value : each) {
      const size_t size = strlen(one);
      one[size - 1] = '0' + number;
      read_attribute<float>(api, info, one, value);
      one += size + 1;
    }
    constexpr int64_t MOST = 1 << 24;
    if (taps < 1 || stride < 1 || dilation < 1 || before < 0 || taps > MOST || stride > MOST || dilation > MOST ||
        before > MOST)
      throw Refused{"ConvWeightGradient: an attribute is out of range"};
    return {0, 0, taps, stride, dilation, before};
  }

  void check_shapes(const Axes& x, const Axes& gy) const {
    const bool fits = (x.count == 3 || x.count == 4) && gy.count == x.count && x.size[0] == gy.size[0] &&
                      x.size[1] % group == 0 && gy.size[1] % group == 0;
    if (!fits) throw Refused{"ConvWeightGradient: the shapes of the inputs do not fit each other"};
  }

  static WindowAxis measure(WindowAxis axis, int64_t size, int64_t outputs) {
    axis.size = size, axis.outputs = outputs;
    return axis;
  }

  // Takes a plane as one row where no window reaches from a line to the next: all is longer runs then.
  static void join_axes(WeightGradient& w) {
    const bool whole = w.wide.taps == 1 && w.wide.stride == 1 && w.wide.before == 0 && w.wide.size == w.wide.outputs;
    if (!whole || w.high.stride != 1 || w.wide.size == 0) return;
    const long width = w.wide.size;
    w.wide = {multiply_sizes(w.high.size, width), multiply_sizes(w.high.outputs, width), w.high.taps, 1,
              w.high.dilation * width, w.high.before * width};
    w.high = {1, 1, 1, 1, 1, 0};
  }

  // Places that windows reach, times the numbers of a line: they are added up and multiplied where nobody checks it.
  static void check_reach(const WindowAxis& axis, double line) {
    const double inside = (double)axis.size + axis.before + (double)axis.stride * axis.outputs;
    if ((inside + (double)axis.taps * axis.dilation) * line > 1e18)
      throw Refused{"ConvWeightGradient: its windows reach farther than can be counted"};
  }

  void run_all(Context* context, const Columns& columns, int64_t numbers) const {
    const WeightGradient& w = columns.given;
    const int64_t depth = multiply_sizes(w.batch, multiply_sizes(w.high.outputs, w.wide.outputs));
    if (numbers == 0) return;
    if (depth == 0) {
      memset(w.gw, 0, numbers * sizeof(float));
      return;
    }
    run_in_parts(api, context, columns, columns.count_parts() * w.groups, 2.0 * numbers * depth);
  }
};

}  // namespace

const Operator conv_weight_gradient = Described<ConvWeightGradient>::describe();
