// The gradient of the weights of a convolution, for one instruction set: included once for each, behind products.inc.h.
//
// It is a product, gy (O, positions of all samples) times what each tap sees there (positions, taps of all channels).
// The second factor is many times as large as x and is not kept: panels of it are gathered when they are multiplied.

#include "weight_gradient.h"

#include <cstdlib>

namespace SET {
namespace {

// Copies SIZE numbers or more, SIZE at a time: the last ones may overlap those before. No function is called for it.
template <long SIZE>
INLINE void copy_stretches(float* to, const float* from, long count) {
  for (long i = 0; i + SIZE <= count; i += SIZE) memcpy(to + i, from + i, SIZE * sizeof(float));
  memcpy(to + count - SIZE, from + count - SIZE, SIZE * sizeof(float));
}

INLINE void copy(float* to, const float* from, long count) {
  if (count >= WIDTH) return copy_stretches<WIDTH>(to, from, count);
  if (count >= 4) return copy_stretches<4>(to, from, count);
  for (long i = 0; i < count; i++) to[i] = from[i];
}

// Numbers of `count` neighbours of a row that a tap sees, where `first` is the place of the first one; 0 outside.
INLINE void gather_row(const float* row, const WindowAxis& axis, long first, long count, float* out) {
  if (axis.stride == 1) {
    const long before = first < 0 ? least(-first, count) : 0;
    const long end = least(axis.size - first, count), inside = end > before ? end - before : 0;
    for (long i = 0; i < before; i++) out[i] = 0;
    copy(out + before, row + first + before, inside);
    for (long i = before + inside; i < count; i++) out[i] = 0;
    return;
  }
  for (long i = 0; i < count; i++) {
    const long at = first + i * axis.stride;
    out[i] = at >= 0 && at < axis.size ? row[at] : 0;
  }
}

// Sets to 0 what a tap that stands `beside` the middle would see in the line before or behind, of `count` positions.
void clear_sides(const WindowAxis& wide, long beside, long position, long count, float* out) {
  const long first = beside < 0 ? 0 : wide.size - least(beside, wide.size), size = least(labs(beside), wide.size);
  for (long line = -(position % wide.size); line < count; line += wide.size)
    for (long i = line + first; i < line + first + size; i++)
      if (i >= 0 && i < count) out[i] = 0;
}

// What one tap sees at `count` positions of a channel from one on. Where windows stop at every place of a line, that is
// a stretch of the plane.
void gather_plane(const WeightGradient& w, const float* plane, long tap, long position, long count, float* out) {
  const long above = tap / w.wide.taps * w.high.dilation - w.high.before;
  const long beside = tap % w.wide.taps * w.wide.dilation - w.wide.before;
  if (w.high.stride == 1 && w.wide.stride == 1 && w.wide.size == w.wide.outputs) {
    const WindowAxis whole = {w.high.size * w.wide.size, 0, 0, 1, 0, 0};
    gather_row(plane, whole, position + above * w.wide.size + beside, count, out);
    if (beside) clear_sides(w.wide, beside, position, count, out);
    return;
  }
  long line = position / w.wide.outputs * w.high.stride + above, j = position % w.wide.outputs;
  for (long run; count > 0; out += run, count -= run, line += w.high.stride, j = 0) {
    run = least(w.wide.outputs - j, count);
    if (line >= 0 && line < w.high.size)
      gather_row(plane + line * w.wide.size, w.wide, j * w.wide.stride + beside, run, out);
    else
      for (long i = 0; i < run; i++) out[i] = 0;
  }
}

// Calls visit(sample, position, count, numbers before) for the stretches of samples that `deep` positions from number k
// of all on consist of.
template <typename Visit>
INLINE void for_samples(long positions, long k, long deep, Visit visit) {
  for (long done = 0, count; done < deep; done += count) {
    const long at = (k + done) % positions;
    count = least(positions - at, deep - done);
    visit((k + done) / positions, at, count, done);
  }
}

INLINE long count_positions(const WeightGradient& w) { return w.high.outputs * w.wide.outputs; }

// A panel of columns: what some taps see at `deep` positions.
void gather_panel(const WeightGradient& w, long group, long column, long count, long k, long deep, float* panel) {
  alignas(64) static thread_local float seen[PANEL * COPY_ROW];
  const long taps = w.high.taps * w.wide.taps, numbers = w.high.size * w.wide.size;
  for (long s = 0; s < count; s++) {
    const long channel = group * w.channels + (column + s) / taps, tap = (column + s) % taps;
    for_samples(count_positions(w), k, deep, [&](long sample, long at, long some, long done) {
      const float* plane = w.x + (sample * w.groups * w.channels + channel) * numbers;
      gather_plane(w, plane, tap, at, some, seen + s * COPY_ROW + done);
    });
  }
  pack_columns(seen, 1, COPY_ROW, deep, count, panel);
}

// Rows of gy at `deep` positions, as `copy_rows` lays them.
void copy_outputs(const WeightGradient& w, long group, long row, long count, long k, long deep, float* copies,
                  Rows* found) {
  const long positions = count_positions(w);
  for (long n = 0; n * ROWS < count; n++) found[n] = {copies + n * COPY_BLOCK, least(ROWS, count - n * ROWS)};
  for (long r = 0; r < count; r++)
    for_samples(positions, k, deep, [&](long sample, long at, long some, long done) {
      const float* from = w.gy + ((sample * w.groups + group) * w.outputs + row + r) * positions + at;
      memcpy(copies + r / ROWS * COPY_BLOCK + r % ROWS * COPY_ROW + done, from, some * sizeof(float));
    });
}

}  // namespace

void find_weight_gradient(const WeightGradient& w, long group, long first, long last) {
  alignas(64) static thread_local float copies[GROUP_BLOCKS * COPY_BLOCK];
  Rows a[GROUP_BLOCKS];
  Product p = {};
  p.a_column = p.b_column = 1, p.alpha = 1;
  p.rows = w.outputs, p.columns = w.channels * w.high.taps * w.wide.taps, p.depth = w.batch * count_positions(w);
  p.c = w.gw + group * p.rows * p.columns;
  for (long k = 0; k < p.depth; k += DEPTH)
    for (long j0 = first; j0 < last; j0 += COLUMNS) {
      const long deep = least(DEPTH, p.depth - k), j1 = least(last, j0 + COLUMNS);
      for (long j = j0; j < j1; j += PANEL)
        gather_panel(w, group, j, least(PANEL, j1 - j), k, deep, packed_columns + (j - j0) * deep);
      for (long i = 0; i < p.rows; i += ROWS) {
        const long n = i / ROWS % GROUP_BLOCKS;
        if (n == 0) copy_outputs(w, group, i, least(GROUP_BLOCKS * ROWS, p.rows - i), k, deep, copies, a);
        for (long j = j0; j < j1; j += PANEL)
          put_block(p, a[n], i, j, k, j1, packed_columns + (j - j0) * deep, PANEL, false);
      }
    }
}

}  // namespace SET
