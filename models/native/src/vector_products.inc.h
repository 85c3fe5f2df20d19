// Products of one row of numbers with a matrix, for one instruction set. Included with SET and WIDTH defined.
#pragma once

#include "functions.inc.h"
#include "products.h"

namespace SET {
namespace {

inline long least(long a, long b) { return a < b ? a : b; }

// Outputs of a product with a vector that are summed up together.
constexpr int SUMS = 4;

// One row of numbers times a matrix whose columns lie along the depth: each output is a sum along it.
void multiply_vector_along(const float* row, const Product& p, long first, long last) {
  for (long j = first; j < last; j += SUMS) {
    const float* b[SUMS];
    for (int s = 0; s < SUMS; s++) b[s] = p.b + least(j + s, last - 1) * p.b_column;
    Vector sum[SUMS] = {};
    long k = 0;
    for (; k + WIDTH <= p.depth; k += WIDTH)
      for (int s = 0; s < SUMS; s++) sum[s] += *(const Vector*)(row + k) * *(const Vector*)(b[s] + k);
    for (int s = 0; s < least(SUMS, last - j); s++) {
      float found = 0;
      for (int v = 0; v < WIDTH; v++) found += sum[s][v];
      for (long rest = k; rest < p.depth; rest++) found += row[rest] * b[s][rest];
      p.c[j + s] = p.alpha * found + (p.bias ? p.bias[j + s] : 0);
    }
  }
}

// One row of numbers times a matrix whose rows lie as they are: its rows are added up, SUMS of them at a time.
void multiply_vector_across(const float* row, const Product& p, long first, long last) {
  for (long j = first; j < last; j++) p.c[j] = p.bias ? p.bias[j] : 0;
  for (long k = 0; k < p.depth; k += SUMS) {
    const long count = least(SUMS, p.depth - k);
    const float* b[SUMS];
    float number[SUMS];
    for (long s = 0; s < count; s++) number[s] = p.alpha * row[k + s], b[s] = p.b + (k + s) * p.b_row;
    if (count == SUMS)
      for (long j = first; j < last; j++)
        p.c[j] += number[0] * b[0][j] + number[1] * b[1][j] + number[2] * b[2][j] + number[3] * b[3][j];
    else
      for (long s = 0; s < count; s++)
        for (long j = first; j < last; j++) p.c[j] += number[s] * b[s][j];
  }
}

}  // namespace
}  // namespace SET
