// Products of matrices for onnxruntime: MatMul and Gemm of ONNX, and FusedMatMul, into which onnxruntime puts transposes.
//
// They take the place of onnxruntime's own kernels in a session that has registered this library; graphs need nothing
// for it. All are of float32.

#include <initializer_list>
#include <mutex>

#include "kernels.h"
#include "runtime_api.h"
#include "sets.h"

using namespace runtime;

namespace {

// The domains of the operators, made once: sessions keep them as long as they live.
struct Domains {
  Domain *onnx = nullptr, *microsoft = nullptr;
};

Status* make_domain(const Api* api, const char* name, std::initializer_list<const Operator*> operators, Domain** found) {
  Domain* made = nullptr;
  Status* status = create_domain(api, name, &made);
  for (const Operator* one : operators)
    if (!status) status = add_operator(api, made, one);
  if (status && made) release_domain(api, made);
  if (!status) *found = made;
  return status;
}

Status* find_domains(const Api* api, Domains* found) {
  static std::mutex one_at_a_time;
  static Domains made;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  if (!made.onnx)
    if (Status* status = make_domain(api, "", {&matmul, &gemm}, &made.onnx)) return status;
  if (!made.microsoft)
    if (Status* status = make_domain(api, "com.microsoft", {&fused_matmul}, &made.microsoft)) return status;
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
  Domains domains;
  if (Status* status = find_domains(api, &domains)) return status;
  if (Status* status = add_domain(api, options, domains.onnx)) return status;
  return add_domain(api, options, domains.microsoft);
}

// Name of the instruction set of this process; null: AUSCULT_NATIVE_SET names one that is not there.
EXPORT const char* auscult_native_set() {
  const InstructionSet* set = choose_set();
  return set ? set->name : nullptr;
}
