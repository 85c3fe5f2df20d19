// The product of two matrices, for one instruction set. Included once for each, with SET defined as its name and
// WIDTH as the floats of its vectors; the compiler is told the set by its options.
//
// C (rows, columns) = alpha * A (rows, depth) * B (depth, columns), or that added to C. A block of C lies in registers
// while the depth is walked through. So each vector of B that is loaded serves ROWS multiplications, and a number of A
// is spread over a vector as it is loaded (K. Goto, R. van de Geijn 2008).

#include "products.h"

#include <cstring>

#include "functions.inc.h"
#include "vector_products.inc.h"

namespace SET {
namespace {

// A block of C: as many rows and vectors as there are registers for, beside a row of B and a number of A.
#if WIDTH == 16 || defined(__aarch64__)
constexpr int ROWS = 8, VECTORS = 3;
#else
constexpr int ROWS = 6, VECTORS = 2;
#endif
constexpr int PANEL = VECTORS * WIDTH;

// Steps of the depth that are walked through at once: the rows of a block lie in the fastest cache.
constexpr long DEPTH = 256;

// Columns that are packed at once: with DEPTH steps, a part of the second cache.
constexpr long COLUMNS = 10 * PANEL;

// Rows up to which B is read where it is: a copy would be used too rarely. Where rows of B are LONG_ROW numbers long or
// more, its panels fall on the same few lines of the cache, and are copied unless one block of rows is all there is.
constexpr long READ_IN_PLACE = 5 * ROWS, LONG_ROW = 1024;

// Rows ahead that are asked for where they are far from each other, so that the processor does not guess them.
constexpr long AHEAD = 24;

// Numbers of a line of the cache.
constexpr long LINE = 16;

// Rows up to which a B whose columns lie along the depth is multiplied number by number along the depth.
constexpr long DOTTED = 16;

// Columns up to which the same is done whatever B is: of a vector of them most would be empty.
constexpr long NARROW = 8, NARROW_DEPTH = 2048;

// Sums that become one vector.
constexpr int DOT_ROWS = WIDTH == 8 ? 2 : 4, DOT_COLUMNS = 4;

// Numbers from one copied row of A to the next.
constexpr long COPY_ROW = DEPTH + LINE;  // no power of two

// One block: c (M, V vectors) = start + alpha * a * b. Numbers of A are A_ROW apart from a row to the next, and A_STEP
// from one step of the depth to the next: constants, so that one register is enough to find them all. `start`: what is
// there before, with numbers from one row to the next; null: nothing. FAR: B is not copied, and its rows are far from
// each other, so that the processor does not guess them.
template <int M, int V, bool FAR, long A_ROW, long A_STEP>
__attribute__((noinline)) void block(const float* a, const float* b, long b_step, long depth, float* c, long c_row,
                                     float alpha, const float* start, long start_row) {
  Vector sum[M][V];
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) {
      sum[i][v] = Vector{};
      __builtin_prefetch(c + i * c_row + v * WIDTH, 1);
    }
  for (long k = 0; k < depth; k++) {
    Vector row[V];
    for (int v = 0; v < V; v++) {
      row[v] = *(const Vector*)(b + k * b_step + v * WIDTH);
      if (FAR) __builtin_prefetch(b + (k + AHEAD) * b_step + v * WIDTH);
    }
    for (int i = 0; i < M; i++) {
      const float number = a[i * A_ROW + k * A_STEP];
      for (int v = 0; v < V; v++) sum[i][v] += number * row[v];
    }
  }
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) {
      const Vector found = alpha * sum[i][v];
      const float* before = start + i * start_row + v * WIDTH;
      *(Vector*)(c + i * c_row + v * WIDTH) = start ? *(const Vector*)before + found : found;
    }
}

typedef void (*Block)(const float*, const float*, long, long, float*, long, float, const float*, long);

// The block of so many rows and vectors; M and V count up to them.
template <bool FAR, long A_ROW, long A_STEP, int M = 1, int V = 1>
Block block_of(long rows, long vectors) {
  if constexpr (M < ROWS) {
    if (rows > M) return block_of<FAR, A_ROW, A_STEP, M + 1, V>(rows, vectors);
  }
  if constexpr (V < VECTORS) {
    if (vectors > V) return block_of<FAR, A_ROW, A_STEP, M, V + 1>(rows, vectors);
  }
  return block<M, V, FAR, A_ROW, A_STEP>;
}

// The numbers at even places of a pair of vectors, and those at odd places; in groups of `group` numbers.
template <int GROUP, bool ODD>
inline __attribute__((always_inline)) Vector pick(Vector x, Vector y) {
  Places places;
  for (int i = 0; i < WIDTH; i++) {
    const int pair = i / (2 * GROUP), within = i % (2 * GROUP);
    places[i] = pair * 2 * GROUP + (ODD ? GROUP : 0) + within % GROUP + (within < GROUP ? 0 : WIDTH);
  }
  return __builtin_shuffle(x, y, places);
}

template <int GROUP>
inline __attribute__((always_inline)) void transpose(Vector* rows) {
  if constexpr (GROUP < WIDTH) {
    for (int i = 0; i < WIDTH; i += 2 * GROUP)
      for (int r = i; r < i + GROUP; r++) {
        const Vector x = rows[r], y = rows[r + GROUP];
        rows[r] = pick<GROUP, false>(x, y), rows[r + GROUP] = pick<GROUP, true>(x, y);
      }
    transpose<2 * GROUP>(rows);
  }
}

// WIDTH sums of WIDTH parts each -> the sums, in one vector.
template <int GROUP = WIDTH / 2>
inline __attribute__((always_inline)) Vector add_up(Vector* parts) {
  for (int i = 0; i < GROUP; i++) {
    const Vector x = parts[i], y = parts[i + GROUP];
    parts[i] = pick<GROUP, false>(x, y) + pick<GROUP, true>(x, y);
  }
  if constexpr (GROUP > 1) return add_up<GROUP / 2>(parts);
  else return parts[0];
}

// Columns that are packed.
alignas(64) thread_local float packed_columns[DEPTH * COLUMNS];

// Copies columns of B that lie next to each other into panels of PANEL columns, a row of all panels after the other: so
// that what is read lies together.
void pack_rows(const float* b, long b_row, long depth, long panels, float* packed) {
  for (long k = 0; k < depth; k++)
    for (long n = 0; n < panels; n++)
      for (int v = 0; v < VECTORS; v++) {
        const float* from = b + k * b_row + n * PANEL + v * WIDTH;
        __builtin_prefetch(from + 4 * b_row);
        *(Vector*)(packed + (n * depth + k) * PANEL + v * WIDTH) = *(const Vector*)from;
      }
}

// Copies `count` columns of B into a panel of PANEL columns; those that B does not have are 0.
void pack_columns(const float* b, long b_row, long b_column, long depth, long count, float* panel) {
  if (count < PANEL) memset(panel, 0, depth * PANEL * sizeof(float));
  long done = 0;
  if (b_row == 1)
    for (; done + WIDTH <= depth; done += WIDTH)
      for (long j = 0; j + WIDTH <= count; j += WIDTH) {
        Vector rows[WIDTH];
        for (int r = 0; r < WIDTH; r++) rows[r] = *(const Vector*)(b + done + (j + r) * b_column);
        transpose<1>(rows);
        for (int r = 0; r < WIDTH; r++) *(Vector*)(panel + (done + r) * PANEL + j) = rows[r];
      }
  for (long j = 0; j < count; j++)  // what is left
    for (long k = j < count / WIDTH * WIDTH ? done : 0; k < depth; k++)
      panel[k * PANEL + j] = b[k * b_row + j * b_column];
}

// Rows of A as a block reads them. Copies: where rows are powers of two long, all that a block reads would fall on the
// same few lines of the cache.
struct Rows {
  const float* data;
  long count;
};

// Blocks of rows that are copied at once: where rows of A lie along its columns, what is read lies together.
constexpr long GROUP_BLOCKS = 16;
constexpr long COPY_BLOCK = ROWS * COPY_ROW;

void copy_rows(const Product& p, long i, long k, long count, float* copies, Rows* found) {
  const long depth = least(DEPTH, p.depth - k), whole = p.a_row == 1 ? count / ROWS : 0;
  const float* a = p.a + i * p.a_row + k * p.a_column;
  for (long n = 0; n * ROWS < count; n++) found[n] = {copies + n * COPY_BLOCK, least(ROWS, count - n * ROWS)};
  if (p.a_column == 1) {
    for (long r = 0; r < count; r++)
      memcpy(copies + r / ROWS * COPY_BLOCK + r % ROWS * COPY_ROW, a + r * p.a_row, depth * sizeof(float));
    return;
  }
  for (long s = 0; s < depth; s++) {
    const float* from = a + s * p.a_column;
    for (long n = 0; n < whole; n++) {
      memcpy(copies + n * COPY_BLOCK + s * ROWS, from + n * ROWS, ROWS * sizeof(float));
      __builtin_prefetch(from + AHEAD * p.a_column + n * ROWS);
    }
    for (long r = whole * ROWS; r < count; r++) copies[r / ROWS * COPY_BLOCK + s * ROWS + r % ROWS] = from[r * p.a_row];
  }
}

// The part of C at row i and column j, of at most ROWS and PANEL, from step k of the depth on; what does not fill whole
// vectors by way of a corner of its own.
void put_block(const Product& p, const Rows& a, long i, long j, long k, long last, const float* b, long b_step,
               bool far) {
  const long depth = least(DEPTH, p.depth - k), count = least(PANEL, last - j);
  const long vectors = (count + WIDTH - 1) / WIDTH;
  float* c = p.c + i * p.columns + j;
  const float* start = k > 0 ? c : p.bias ? p.bias + j : nullptr;
  const long start_row = k > 0 ? p.columns : 0;
  const Block run = p.a_column != 1 ? block_of<false, 1, ROWS>(a.count, vectors)
                    : far           ? block_of<true, COPY_ROW, 1>(a.count, vectors)
                                    : block_of<false, COPY_ROW, 1>(a.count, vectors);
  if (count == vectors * WIDTH)
    return run(a.data, b, b_step, depth, c, p.columns, p.alpha, start, start_row);
  alignas(64) float corner[ROWS * PANEL];
  run(a.data, b, b_step, depth, corner, PANEL, p.alpha, nullptr, 0);
  for (long r = 0; r < a.count; r++)
    for (long s = 0; s < count; s++)
      c[r * p.columns + s] = corner[r * PANEL + s] + (start ? start[r * start_row + s] : 0);
}

// Few rows, and B as it lies: its rows are read where they are, but for those where a whole vector would go beyond B.
void multiply_in_place(const Product& p, long first, long last) {
  alignas(64) static thread_local float copies[READ_IN_PLACE / ROWS * COPY_BLOCK], tail[DEPTH * PANEL];
  const float* end = p.b + (p.depth - 1) * p.b_row + p.columns;
  Rows a[READ_IN_PLACE / ROWS];
  for (long k = 0; k < p.depth; k += DEPTH) {
    copy_rows(p, 0, k, least(READ_IN_PLACE, p.rows), copies, a);
    for (long j = first; j < last; j += PANEL) {
      const long depth = least(DEPTH, p.depth - k), count = least(PANEL, last - j);
      const float* b = p.b + k * p.b_row + j;
      const bool beyond = b + (depth - 1) * p.b_row + (count + WIDTH - 1) / WIDTH * WIDTH > end;
      if (beyond) pack_columns(b, p.b_row, 1, depth, count, tail);
      for (long i = 0; i < p.rows; i += ROWS)
        put_block(p, a[i / ROWS], i, j, k, last, beyond ? tail : b, beyond ? PANEL : p.b_row, i == 0 && !beyond);
    }
  }
}

void multiply_packed(const Product& p, long first, long last) {
  alignas(64) static thread_local float copies[GROUP_BLOCKS * COPY_BLOCK];
  Rows a[GROUP_BLOCKS];
  for (long k = 0; k < p.depth || k == 0; k += DEPTH) {
    const long depth = least(DEPTH, p.depth - k);
    for (long j0 = first; j0 < last; j0 += COLUMNS) {
      const long j1 = least(last, j0 + COLUMNS), whole = p.b_column == 1 ? (j1 - j0) / PANEL : 0;
      const float* b = p.b + k * p.b_row + j0 * p.b_column;
      if (whole) pack_rows(b, p.b_row, depth, whole, packed_columns);
      for (long j = j0 + whole * PANEL; j < j1; j += PANEL)
        pack_columns(b + (j - j0) * p.b_column, p.b_row, p.b_column, depth, least(PANEL, j1 - j),
                     packed_columns + (j - j0) * depth);
      for (long i = 0; i < p.rows; i += ROWS) {
        const long n = i / ROWS % GROUP_BLOCKS;
        if (n == 0) copy_rows(p, i, k, least(GROUP_BLOCKS * ROWS, p.rows - i), copies, a);
        for (long j = j0; j < j1; j += PANEL)
          put_block(p, a[n], i, j, k, j1, packed_columns + (j - j0) * depth, PANEL, false);
      }
    }
  }
}

// Rows of A and columns of B that both lie along the depth: each number of C is a sum along it.
void multiply_dots(const Product& p, long first, long last) {
  for (long j = first; j < last; j += DOT_COLUMNS)
    for (long i = 0; i < p.rows; i += DOT_ROWS) {
      const float *a[DOT_ROWS], *b[DOT_COLUMNS];
      for (int r = 0; r < DOT_ROWS; r++) a[r] = p.a + least(i + r, p.rows - 1) * p.a_row;
      for (int s = 0; s < DOT_COLUMNS; s++) b[s] = p.b + least(j + s, last - 1) * p.b_column;
      Vector sum[DOT_ROWS * DOT_COLUMNS] = {};
      long k = 0;
      for (; k + WIDTH <= p.depth; k += WIDTH) {
        Vector column[DOT_COLUMNS];
        for (int s = 0; s < DOT_COLUMNS; s++) column[s] = *(const Vector*)(b[s] + k);
        for (int r = 0; r < DOT_ROWS; r++) {
          const Vector row = *(const Vector*)(a[r] + k);
          for (int s = 0; s < DOT_COLUMNS; s++) sum[r * DOT_COLUMNS + s] += row * column[s];
        }
      }
      alignas(64) float found[DOT_ROWS * DOT_COLUMNS];
      for (int v = 0; v < DOT_ROWS * DOT_COLUMNS; v += WIDTH) *(Vector*)(found + v) = p.alpha * add_up(sum + v);
      for (; k < p.depth; k++)
        for (int r = 0; r < DOT_ROWS; r++)
          for (int s = 0; s < DOT_COLUMNS; s++) found[r * DOT_COLUMNS + s] += p.alpha * a[r][k] * b[s][k];
      for (long r = 0; r < least(DOT_ROWS, p.rows - i); r++)
        for (long s = 0; s < least(DOT_COLUMNS, last - j); s++)
          p.c[(i + r) * p.columns + j + s] = found[r * DOT_COLUMNS + s] + (p.bias ? p.bias[j + s] : 0);
    }
}

// Few columns: a copy of B, whose columns lie along the depth.
void multiply_narrow(const Product& p, long first, long last) {
  alignas(64) static thread_local float copy[NARROW * NARROW_DEPTH];
  Product turned = p;
  turned.b = copy, turned.b_row = 1, turned.b_column = p.depth;
  for (long k = 0; k < p.depth; k++)
    for (long j = first; j < last; j++) copy[j * p.depth + k] = p.b[k * p.b_row + j * p.b_column];
  multiply_dots(turned, first, last);
}

}  // namespace

void multiply(const Product& p, long first, long last) {
  if (p.rows == 1 && (p.a_column == 1 || p.depth == 1)) {
    if (p.b_column == 1) return multiply_vector_across(p.a, p, first, last);
    if (p.b_row == 1) return multiply_vector_along(p.a, p, first, last);
  }
  if (p.columns == 1 && !p.bias && (p.b_row == 1 || p.depth == 1)) {  // the same, seen from the other side
    const Product turned = {p.b, 0, 1, p.a, p.a_column, p.a_row, p.c, 1, p.rows, p.depth, p.alpha, nullptr};
    if (p.a_column == 1) return multiply_vector_along(p.b, turned, 0, p.rows);
    if (p.a_row == 1) return multiply_vector_across(p.b, turned, 0, p.rows);
  }
  const bool narrow = p.columns <= NARROW && p.columns < WIDTH && p.rows > ROWS && p.depth <= NARROW_DEPTH;
  if (p.a_column == 1 && p.depth >= 4 * WIDTH) {
    if (p.b_row == 1 && (p.rows <= DOTTED || narrow)) return multiply_dots(p, first, last);
    if (narrow) return multiply_narrow(p, first, last);
  }
  const long most = p.b_row < LONG_ROW ? READ_IN_PLACE : ROWS;
  if (p.depth > 0 && p.b_column == 1 && p.rows <= most) return multiply_in_place(p, first, last);
  return multiply_packed(p, first, last);
}

}  // namespace SET
