// The loops of recurrent layers, for one instruction set: included once for each, behind products.inc.h.
//
// The recurrent weights are packed once for a run, as panels that stay in the cache from step to step; the sums of a
// step go to scratch, and the gates are taken from there.

#include "functions.inc.h"
#include "recurrent.h"

namespace SET {
namespace {

INLINE Vector load(const float* from, long count) {
  if (count >= WIDTH) return *(const Vector*)from;
  Vector found = {};
  memcpy(&found, from, count * sizeof(float));
  return found;
}

INLINE void store(float* to, Vector numbers, long count) {
  if (count >= WIDTH) *(Vector*)to = numbers;
  else memcpy(to, &numbers, count * sizeof(float));
}

inline long fill_panels(long columns) { return (columns + PANEL - 1) / PANEL * PANEL; }

// sums (rows, fill_panels(columns)) = a (rows, depth), row after row, times the packed matrix (depth, columns).
void multiply_packed_once(const float* a, long rows, long depth, const float* packed, long columns, float* sums) {
  alignas(64) static thread_local float copies[COPY_BLOCK];
  const long filled = fill_panels(columns);
  for (long k = 0; k < depth; k += DEPTH) {
    const long deep = least(DEPTH, depth - k);
    for (long i = 0; i < rows; i += ROWS) {
      const long count = least(ROWS, rows - i);
      for (long r = 0; r < count; r++) memcpy(copies + r * COPY_ROW, a + (i + r) * depth + k, deep * sizeof(float));
      for (long j = 0; j < filled; j += PANEL) {
        float* c = sums + i * filled + j;
        const Block run = block_of<false, COPY_ROW, 1>(count, least(VECTORS, (columns - j + WIDTH - 1) / WIDTH));
        run(copies, packed + k * filled + j * deep, PANEL, deep, c, filled, 1, k ? c : nullptr, filled);
      }
    }
  }
}

inline long step_at(const Loop& loop, long number) { return loop.backwards ? loop.steps - 1 - number : number; }

// Calls visit(row, unit, units that are left) for all units of some rows, a vector at a time.
template <typename Visit>
INLINE void for_units(long first, long last, long hidden, Visit visit) {
  for (long row = first; row < last; row++)
    for (long j = 0; j < hidden; j += WIDTH) visit(row, j, hidden - j);
}

long count_packed(long depth, long columns) { return depth * fill_panels(columns); }

// Panels of PANEL columns: those of the first DEPTH rows of B, then those of the next ones.
void pack(const float* b, long b_row, long b_column, long depth, long columns, float* packed) {
  const long whole = b_column == 1 ? columns / PANEL : 0;
  for (long k = 0; k < depth; k += DEPTH) {
    const long deep = least(DEPTH, depth - k);
    float* panels = packed + k * fill_panels(columns);
    if (whole) pack_rows(b + k * b_row, b_row, deep, whole, panels);
    for (long j = whole * PANEL; j < columns; j += PANEL)
      pack_columns(b + k * b_row + j * b_column, b_row, b_column, deep, least(PANEL, columns - j), panels + j * deep);
  }
}

void run_lstm(const Lstm& p, long first, long last) {
  const long size = p.loop.hidden, rows = p.loop.rows, filled = fill_panels(4 * size);
  float *sums = p.loop.scratch + first * filled, *h = p.last_h, *c = p.last_c;
  memcpy(h + first * size, p.h0 + first * size, (last - first) * size * sizeof(float));
  memcpy(c + first * size, p.c0 + first * size, (last - first) * size * sizeof(float));
  for (long n = 0; n < p.loop.steps; n++) {
    const long start = step_at(p.loop, n) * rows;
    multiply_packed_once(h + first * size, last - first, size, p.loop.packed, 4 * size, sums);
    for_units(first, last, size, [&](long row, long j, long count) {
      const float *sum = sums + (row - first) * filled + j, *gx = p.gx + (start + row) * 4 * size + j;
      const Vector i = sigmoid(load(sum, count) + load(gx, count));
      const Vector o = sigmoid(load(sum + size, count) + load(gx + size, count));
      const Vector f = sigmoid(load(sum + 2 * size, count) + load(gx + 2 * size, count));
      const Vector m = hyperbolic_tangent(load(sum + 3 * size, count) + load(gx + 3 * size, count));
      const Vector before = load(c + row * size + j, count), now = i * m + f * before;
      const Vector bent = hyperbolic_tangent(now), out = o * bent;
      store(c + row * size + j, now, count);
      store(h + row * size + j, out, count);
      const long place = (start + row) * size + j;
      store(p.iof + 3 * place - 2 * j, i, count);
      store(p.iof + 3 * place - 2 * j + size, o, count);
      store(p.iof + 3 * place - 2 * j + 2 * size, f, count);
      store(p.m + place, m, count);
      store(p.tanh_c + place, bent, count);
      store(p.before + place, before, count);
      store(p.h + place, out, count);
    });
  }
}

void run_lstm_gradient(const LstmGradient& p, long first, long last) {
  const long size = p.loop.hidden, rows = p.loop.rows, filled = fill_panels(size);
  float *dh = p.loop.scratch + first * filled, *dc = p.dc0;
  for (long row = first; row < last; row++)
    memcpy(dh + (row - first) * filled, p.dh + row * size, size * sizeof(float));
  memcpy(dc + first * size, p.dc + first * size, (last - first) * size * sizeof(float));
  for (long n = 0; n < p.loop.steps; n++) {
    const long start = step_at(p.loop, n) * rows;
    for_units(first, last, size, [&](long row, long j, long count) {
      const long place = (start + row) * size + j;
      const float* iof = p.iof + 3 * place - 2 * j;
      const Vector i = load(iof, count), o = load(iof + size, count), f = load(iof + 2 * size, count);
      const Vector m = load(p.m + place, count), bent = load(p.tanh_c + place, count);
      const Vector before = load(p.before + place, count);
      const Vector total = load(dh + (row - first) * filled + j, count) + load(p.dy + place, count);
      const Vector u = load(dc + row * size + j, count) + total * (o * (1 - bent * bent));
      float* gates = p.gates + 4 * place - 3 * j;
      store(gates, u * (m * (i * (1 - i))), count);
      store(gates + size, total * (bent * (o * (1 - o))), count);
      store(gates + 2 * size, u * (before * (f * (1 - f))), count);
      store(gates + 3 * size, u * (i * (1 - m * m)), count);
      store(dc + row * size + j, u * f, count);
    });
    multiply_packed_once(p.gates + (start + first) * 4 * size, last - first, 4 * size, p.loop.packed, size, dh);
  }
  for (long row = first; row < last; row++)
    memcpy(p.dh0 + row * size, dh + (row - first) * filled, size * sizeof(float));
}

void run_gru(const Gru& p, long first, long last) {
  const long size = p.loop.hidden, rows = p.loop.rows, filled = fill_panels(3 * size);
  float *sums = p.loop.scratch + first * filled, *h = p.last_h;
  memcpy(h + first * size, p.h0 + first * size, (last - first) * size * sizeof(float));
  for (long n = 0; n < p.loop.steps; n++) {
    const long start = step_at(p.loop, n) * rows;
    multiply_packed_once(h + first * size, last - first, size, p.loop.packed, 3 * size, sums);
    for_units(first, last, size, [&](long row, long j, long count) {
      const float *sum = sums + (row - first) * filled + j, *gx = p.gx + (start + row) * 3 * size + j, *bh = p.bh + j;
      const Vector z = sigmoid(load(gx, count) + (load(sum, count) + load(bh, count)));
      const Vector r = sigmoid(load(gx + size, count) + (load(sum + size, count) + load(bh + size, count)));
      const Vector ghm = load(sum + 2 * size, count) + load(bh + 2 * size, count);
      const Vector m = hyperbolic_tangent(load(gx + 2 * size, count) + r * ghm);
      const Vector out = (1 - z) * m + z * load(h + row * size + j, count);
      store(h + row * size + j, out, count);
      const long place = (start + row) * size + j;
      store(p.zr + 2 * place - j, z, count);
      store(p.zr + 2 * place - j + size, r, count);
      store(p.m + place, m, count);
      store(p.ghm + place, ghm, count);
      store(p.h + place, out, count);
    });
  }
}

void run_gru_gradient(const GruGradient& p, long first, long last) {
  const long size = p.loop.hidden, rows = p.loop.rows, filled = fill_panels(size);
  float *sums = p.loop.scratch + first * filled, *dh = p.dh0;
  memcpy(dh + first * size, p.dh + first * size, (last - first) * size * sizeof(float));
  for (long n = 0; n < p.loop.steps; n++) {
    const long start = step_at(p.loop, n) * rows;
    for_units(first, last, size, [&](long row, long j, long count) {
      const long place = (start + row) * size + j;
      const float* zr = p.zr + 2 * place - j;
      const Vector z = load(zr, count), r = load(zr + size, count), m = load(p.m + place, count);
      const Vector ghm = load(p.ghm + place, count), before = load(p.before + place, count);
      const Vector total = load(dh + row * size + j, count) + load(p.dy + place, count);
      const Vector am = (1 - z) * (1 - m * m), through_z = total * ((before - m) * (z * (1 - z)));
      const Vector through_r = total * ((am * ghm) * (r * (1 - r)));
      float *dgh = p.dgh + 3 * place - 2 * j, *dgx = p.dgx + 3 * place - 2 * j;
      store(dgh, through_z, count), store(dgx, through_z, count);
      store(dgh + size, through_r, count), store(dgx + size, through_r, count);
      store(dgh + 2 * size, total * (am * r), count), store(dgx + 2 * size, total * am, count);
      store(dh + row * size + j, total * z, count);
    });
    multiply_packed_once(p.dgh + (start + first) * 3 * size, last - first, 3 * size, p.loop.packed, size, sums);
    for_units(first, last, size, [&](long row, long j, long count) {
      float* next = dh + row * size + j;
      store(next, load(sums + (row - first) * filled + j, count) + load(next, count), count);
    });
  }
}

}  // namespace

extern const Loops loops = {4 * ROWS, count_packed, pack, run_lstm, run_lstm_gradient, run_gru, run_gru_gradient};

}  // namespace SET
