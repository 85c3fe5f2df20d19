// Products of matrices of equal sizes, cut into parts that threads take.
#pragma once

#include "axes.h"
#include "products.h"
#include "sets.h"

// What one part has at most: whole blocks of every instruction set.
constexpr long PART_ROWS = 504;

struct Batch {
  Product first = {};             // the first of them
  Axes outer_a, outer_b;          // what is before rows and columns: equal sizes, and the steps of A and B
  void (*multiply)(const Product&, long first, long last) = nullptr;

  long count_row_parts() const { return (first.rows + PART_ROWS - 1) / PART_ROWS; }
  long count_column_parts() const { return (first.columns + PART_COLUMNS - 1) / PART_COLUMNS; }
  long count_parts() const { return outer_a.numbers() * count_row_parts() * count_column_parts(); }
  double count_operations() const { return 2.0 * outer_a.numbers() * first.rows * first.columns * first.depth; }

  // Takes the last outer axes as rows where A has its numbers in such an order, and B is the same for all of them.
  void merge_rows() {
    while (outer_a.count > 0 && outer_b.step_from_end(1) == 0) {
      const int64_t size = outer_a.size_from_end(1), step = outer_a.step_from_end(1);
      if (first.rows != 1 && step != first.rows * first.a_row) return;
      if (first.rows == 1) first.a_row = step;
      first.rows *= size, outer_a.count--, outer_b.count--;
    }
  }

  void run_part(long number) const {
    const long columns = count_column_parts(), tiles = count_row_parts() * columns;
    const long row = number % tiles / columns * PART_ROWS, column = number % columns * PART_COLUMNS;
    Product one = first;
    long rest = number / tiles;
    one.c += rest * first.rows * first.columns;
    for (size_t i = outer_a.count; i > 0; rest /= outer_a.size[--i]) {
      one.a += rest % outer_a.size[i - 1] * outer_a.step[i - 1];
      one.b += rest % outer_a.size[i - 1] * outer_b.step[i - 1];
    }
    one.a += row * first.a_row, one.c += row * first.columns;
    if (one.rows - row < PART_ROWS) one.rows -= row;
    else one.rows = PART_ROWS;
    const long end = column + PART_COLUMNS;
    multiply(one, column, end < first.columns ? end : first.columns);
  }
};
