// Work in parts that do not depend on each other, which onnxruntime's threads take if there is enough of it.
#pragma once

#include <atomic>
#include <new>

#include "tensor.h"

// Multiplications and additions from which on there is work for several threads.
constexpr double WORTH_A_THREAD = 4e6;

// What the parts are of, and whether one of them has failed. No exception may leave a part: onnxruntime's threads would
// go on with what the one that failed has given back.
template <typename Given>
struct Work {
  const Given& given;
  std::atomic<bool> failed{false};

  static void run_part(void* work, size_t number) noexcept {
    Work& w = *(Work*)work;
    try {
      w.given.run_part(number);
    } catch (...) {
      w.failed = true;
    }
  }
};

// Calls given.run_part(number) for all parts. Throws bad_alloc if one of them threw: memory is all that they ask for.
template <typename Given>
void run_in_parts(const runtime::Api* api, const runtime::Context* context, const Given& given, long parts,
                  double operations) {
  Work<Given> work{given};
  if (parts > 1 && operations > WORTH_A_THREAD)
    check(runtime::run_parts(api, context, Work<Given>::run_part, parts, &work));
  else
    for (long i = 0; i < parts; i++) Work<Given>::run_part(&work, i);
  if (work.failed) throw std::bad_alloc();
}
