// What a product of matrices is: C (rows, columns) = alpha * A (rows, depth) * B (depth, columns) + bias.
#pragma once

// Columns that are a part of their own: whole panels of every instruction set.
constexpr long PART_COLUMNS = 480;

struct Product {
  const float* a;
  long a_row, a_column;  // numbers from one row, and one column, of A to the next
  const float* b;
  long b_row, b_column;
  float* c;  // row after row
  long rows, columns, depth;
  float alpha;
  const float* bias;  // (columns,), which is added to each row; null: none
};
