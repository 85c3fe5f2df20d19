#include "sets.h"

#include <cstdlib>
#include <cstring>

#define DECLARE(SET)                                                                    \
  namespace SET {                                                                       \
  void multiply(const Product& p, long first, long last);                               \
  extern const StepKind step_kinds[];                                                   \
  float add_up_numbers(const float* from, long count);                                  \
  extern const Loops loops;                                                             \
  void find_weight_gradient(const WeightGradient& w, long group, long first, long last);\
  }

#define PARTS_OF(SET) SET::multiply, SET::step_kinds, SET::add_up_numbers, &SET::loops, SET::find_weight_gradient

#ifdef HAS_avx512
DECLARE(avx512)
#endif
#ifdef HAS_avx2
DECLARE(avx2)
#endif
#ifdef HAS_sse2
DECLARE(sse2)
#endif
#ifdef HAS_neon
DECLARE(neon)
#endif
#ifdef HAS_plain
DECLARE(plain)
#endif

namespace {

bool always() { return true; }

// Best first.
const InstructionSet sets[] = {
#ifdef HAS_avx512
    {"avx512",
     [] {
       return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
              __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
     },
     PARTS_OF(avx512)},
#endif
#ifdef HAS_avx2
    {"avx2", [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }, PARTS_OF(avx2)},
#endif
#ifdef HAS_sse2
    {"sse2", always, PARTS_OF(sse2)},  // every x86-64 has it
#endif
#ifdef HAS_neon
    {"neon", always, PARTS_OF(neon)},  // every aarch64 has it
#endif
#ifdef HAS_plain
    {"plain", always, PARTS_OF(plain)},
#endif
};

const InstructionSet* find_set() {
#if defined(__x86_64__)
  __builtin_cpu_init();
#endif
  const char* wanted = getenv("AUSCULT_NATIVE_SET");
  for (const InstructionSet& set : sets)
    if ((!wanted || !*wanted || strcmp(wanted, set.name) == 0) && set.is_there()) return &set;
  return nullptr;
}

}  // namespace

const InstructionSet* choose_set() {
  static const InstructionSet* const chosen = find_set();
  return chosen;
}
