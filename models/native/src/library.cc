// Products of matrices for onnxruntime: MatMul and Gemm of ONNX.
//
// They take the place of onnxruntime's own kernels in a session that has registered this library; graphs need nothing
// for it. All are of float32.

#include <mutex>

#include "kernels.h"
#include "runtime_api.h"
#include "sets.h"

using namespace runtime;

namespace {

// The domain of the operators, made once: sessions keep it as long as they live.
Status* find_domain(const Api* api, Domain** found) {
  static std::mutex one_at_a_time;
  static Domain* made = nullptr;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  if (!made) {
    Domain* onnx = nullptr;
    Status* status = create_domain(api, "", &onnx);
    for (const Operator* one : {&matmul, &gemm})
      if (!status) status = add_operator(api, onnx, one);
    if (status && onnx) release_domain(api, onnx);
    if (status) return status;
    made = onnx;
  }
  *found = made;
  return nullptr;
}

// A runtime that does not know the version of the table says so through the first one, whose first entry is the same.
Status* refuse_version(const ApiBase* base) {
  const Api* oldest = base->get_api(1);
  return oldest ? create_status(oldest, "auscult-native needs onnxruntime 1.17 or newer") : nullptr;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT Status* RegisterCustomOps(SessionOptions* options, const ApiBase* base) {
  if (!options || !base || !base->get_api) return nullptr;  // nobody to tell
  const Api* api = base->get_api(VERSION);
  if (!api) return refuse_version(base);
  if (!choose_set()) return create_status(api, "AUSCULT_NATIVE_SET names an instruction set that is not there");
  Domain* domain = nullptr;
  if (Status* status = find_domain(api, &domain)) return status;
  return add_domain(api, options, domain);
}

// Name of the instruction set of this process; null: AUSCULT_NATIVE_SET names one that is not there.
EXPORT const char* auscult_native_set() {
  const InstructionSet* set = choose_set();
  return set ? set->name : nullptr;
}
