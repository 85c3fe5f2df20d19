// The steps of elementwise programs, for one instruction set. Included with SET and WIDTH defined.

#include <cmath>
#include <cstring>

#include "functions.inc.h"
#include "steps.h"

namespace SET {
namespace {

INLINE Vector as_number(Places truth) { return as_floats(truth & 0x3f800000); }  // 1 or 0
INLINE Places as_truth(Vector x) { return x != 0.0f; }

#define UNUSED [[maybe_unused]]
#define DEFINE(NAME, COUNT, RESULT)                                                        \
  struct NAME {                                                                            \
    static constexpr int OPERANDS = COUNT;                                                 \
    INLINE Vector of(UNUSED Vector a, UNUSED Vector b, UNUSED Vector c) { return RESULT; } \
  };

// A NaN in either operand of Max and Min is what they give, as in onnxruntime.
DEFINE(Add, 2, a + b)
DEFINE(Sub, 2, a - b)
DEFINE(Mul, 2, a * b)
DEFINE(Div, 2, a / b)
DEFINE(Max, 2, select((a > b) | (a != a), a, b))
DEFINE(Min, 2, select((a < b) | (a != a), a, b))
DEFINE(Identity, 1, a)
DEFINE(Neg, 1, -a)
DEFINE(Abs, 1, absolute(a))
DEFINE(Reciprocal, 1, 1.0f / a)
DEFINE(Exp, 1, exponential(a))
DEFINE(Log, 1, logarithm(a))
DEFINE(Tanh, 1, hyperbolic_tangent(a))
DEFINE(Erf, 1, error_function(a))
DEFINE(Sigmoid, 1, sigmoid(a))
DEFINE(Relu, 1, select(a < 0.0f, Vector{}, a))
DEFINE(Sign, 1, select(a != a, a, as_number(a > 0.0f) - as_number(a < 0.0f)))
DEFINE(Greater, 2, as_number(a > b))
DEFINE(Less, 2, as_number(a < b))
DEFINE(GreaterOrEqual, 2, as_number(a >= b))
DEFINE(LessOrEqual, 2, as_number(a <= b))
DEFINE(Equal, 2, as_number(a == b))
DEFINE(And, 2, as_number(as_truth(a) & as_truth(b)))
DEFINE(Or, 2, as_number(as_truth(a) | as_truth(b)))
DEFINE(Not, 1, as_number(a == 0.0f))
DEFINE(Where, 3, select(as_truth(a), b, c))

struct Sqrt {
  static constexpr int OPERANDS = 1;
  INLINE Vector of(Vector a, Vector, Vector) {
    Vector found;
    for (int i = 0; i < WIDTH; i++) found[i] = __builtin_sqrtf(a[i]);
    return found;
  }
};

struct HardSigmoid {  // of x, alpha, beta
  static constexpr int OPERANDS = 3;
  INLINE Vector of(Vector a, Vector b, Vector c) { return limit(a * b + c, 0, 1); }
};

#undef DEFINE
#undef UNUSED

// Vectors computed at once: what one waits for, the others do.
constexpr long AT_ONCE = 2;

template <typename Kind, int SINGLE>
void run_step(float* out, const float* const operands[OPERANDS], long count) {
  Vector x[OPERANDS] = {};
  for (int k = 0; k < Kind::OPERANDS; k++)
    if (SINGLE >> k & 1) x[k] = spread(*operands[k]);
  long i = 0;
  for (; i + AT_ONCE * WIDTH <= count; i += AT_ONCE * WIDTH) {
    Vector found[AT_ONCE];
    for (int v = 0; v < AT_ONCE; v++) {
      for (int k = 0; k < Kind::OPERANDS; k++)
        if (!(SINGLE >> k & 1)) x[k] = *(const Vector*)(operands[k] + i + v * WIDTH);
      found[v] = Kind::of(x[0], x[1], x[2]);
    }
    for (int v = 0; v < AT_ONCE; v++) *(Vector*)(out + i + v * WIDTH) = found[v];
  }
  for (; i < count; i += WIDTH) {  // a whole vector, or the last numbers
    const long rest = count - i < WIDTH ? count - i : WIDTH;
    for (int k = 0; k < Kind::OPERANDS; k++)
      if (!(SINGLE >> k & 1)) memcpy(&x[k], operands[k] + i, rest * sizeof(float));
    const Vector found = Kind::of(x[0], x[1], x[2]);
    memcpy(out + i, &found, rest * sizeof(float));
  }
}

template <typename Kind>
constexpr StepKind list_steps(const char* name) {
  return {name, Kind::OPERANDS, {run_step<Kind, 0>, run_step<Kind, 1>, run_step<Kind, 2 % (1 << Kind::OPERANDS)>,
                                 run_step<Kind, 3 % (1 << Kind::OPERANDS)>, run_step<Kind, 4 % (1 << Kind::OPERANDS)>,
                                 run_step<Kind, 5 % (1 << Kind::OPERANDS)>, run_step<Kind, 6 % (1 << Kind::OPERANDS)>,
                                 run_step<Kind, 7 % (1 << Kind::OPERANDS)>}};
}

}  // namespace

// The sum of some numbers.
float add_up_numbers(const float* from, long count) {
  constexpr int SUMS = 4;
  Vector sums[SUMS] = {};
  long i = 0;
  for (; i + SUMS * WIDTH <= count; i += SUMS * WIDTH)
    for (int s = 0; s < SUMS; s++) sums[s] += *(const Vector*)(from + i + s * WIDTH);
  for (; i + WIDTH <= count; i += WIDTH) sums[0] += *(const Vector*)(from + i);
  const Vector all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  float found = 0;
  for (int k = 0; k < WIDTH; k++) found += all[k];
  for (; i < count; i++) found += from[i];
  return found;
}

#define LIST(NAME) list_steps<NAME>(#NAME)
extern const StepKind step_kinds[] = {
    LIST(Identity), LIST(Add), LIST(Sub), LIST(Mul), LIST(Div), LIST(Max), LIST(Min), LIST(Neg), LIST(Abs),
    LIST(Sqrt), LIST(Reciprocal), LIST(Exp), LIST(Log), LIST(Tanh), LIST(Erf), LIST(Sigmoid), LIST(Relu), LIST(Sign),
    LIST(Greater), LIST(Less), LIST(GreaterOrEqual), LIST(LessOrEqual), LIST(Equal), LIST(And), LIST(Or), LIST(Not),
    LIST(Where), LIST(HardSigmoid), {}};
#undef LIST

}  // namespace SET
