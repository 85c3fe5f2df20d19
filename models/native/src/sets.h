// The instruction sets that products, steps and loops are compiled for, and the one that this process computes with.
#pragma once

#include "products.h"
#include "recurrent.h"
#include "steps.h"
#include "weight_gradient.h"

struct InstructionSet {
  const char* name;
  bool (*is_there)();                                       // true if this processor has it
  void (*multiply)(const Product&, long first, long last);  // columns first ... last of a product
  const StepKind* steps;                                    // after the last one comes one without a name
  float (*add_up)(const float*, long count);
  const Loops* loops;
  void (*find_weight_gradient)(const WeightGradient&, long group, long first, long last);  // columns of it
};

// The best set of this processor, or the one that AUSCULT_NATIVE_SET names; null: that is not there. It is the same for
// as long as the process lives.
const InstructionSet* choose_set();
