// An elementwise program: steps that are done one after the other for every place of tensors of equal shape.
//
// Its text has a line each for `Inputs N`, a `Constant` or a step, and `Return`. Values are numbered: the inputs, then
// what each line gives. So `Inputs 2\nMul 0 1\nConstant 0x1p-1\nAdd 2 3\nReturn 4` is x * y + 0.5. `Sum 4 2` is the sum
// of value 4 along the last two axes, which nothing but `Return` may name.
#pragma once

#include <cstddef>
#include <vector>

#include "steps.h"

struct Program {
  struct Instruction {
    const StepKind* kind;
    int operands[OPERANDS];  // numbers of values
    int result;
  };
  // What a value is: an input, a constant, or the result of a step, which is an output or lies in a row of numbers that
  // is used again once nobody reads it any more.
  enum Role { INPUT, CONSTANT, OUTPUT, ROW, SUM };
  struct Value {
    Role role;
    int place;  // number of the input, constant, output, row or sum
  };
  struct Sum {
    int operand, axes;  // number of a value; the last axes that are summed
    int output;
  };

  int inputs = 0, outputs = 0, rows = 0;
  std::vector<float> constants;
  std::vector<Value> values;
  std::vector<Instruction> steps;
  std::vector<Sum> sums;  // after all steps

  // Throws Refused for a text that is no program.
  Program(const char* text, const StepKind* kinds);

 private:
  int copy(int value, const StepKind* kinds);
  void find_rows();
};
