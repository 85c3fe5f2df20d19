// The steps of an elementwise program: what each computes of a stretch of numbers.
#pragma once

constexpr int OPERANDS = 3;

// Computes `count` numbers of `out` of those of its operands; one that is a single number is read once. `out` may be an
// operand, and no memory beyond any of them is touched.
typedef void (*Step)(float* out, const float* const operands[OPERANDS], long count);

// An operator of ONNX, its operands, and its steps: place s is for those operands that are single numbers where the
// bits of s are set.
struct StepKind {
  const char* name;
  int operands;
  Step steps[1 << OPERANDS];
};
