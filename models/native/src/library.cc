// Operators for onnxruntime: MatMul and Gemm of ONNX, and those of the domain "auscult". All are of float32.
//
// The first two take the place of onnxruntime's own kernels in a session that has registered this library, unless its
// settings have the entry "auscult.own_products"; graphs need nothing for it.

#include <initializer_list>
#include <mutex>

#include "kernels.h"
#include "runtime_api.h"
#include "sets.h"

using namespace runtime;

namespace {

struct Operators {
  const char* domain;
  std::initializer_list<const Operator*> each;
};

const Operators all[] = {{"", {&matmul, &gemm}},
                         {"auscult", {&elementwise, &lstm_loop, &lstm_loop_gradient, &gru_loop, &gru_loop_gradient,
                          &conv_weight_gradient}}};
constexpr size_t DOMAINS = sizeof(all) / sizeof(all[0]);

Status* make_domain(const Api* api, const Operators& given, Domain** found) {
  Status* status = create_domain(api, given.domain, found);
  for (const Operator* one : given.each)
    if (!status) status = add_operator(api, *found, one);
  if (status && *found) release_domain(api, *found);
  if (status) *found = nullptr;
  return status;
}

// The domains of the operators, made once: sessions keep them as long as they live.
Status* find_domains(const Api* api, Domain* const** found) {
  static std::mutex one_at_a_time;
  static Domain* made[DOMAINS] = {};
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  for (size_t i = 0; i < DOMAINS; i++)
    if (!made[i])
      if (Status* status = make_domain(api, all[i], &made[i])) return status;
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
  Domain* const* domains = nullptr;
  Status* status = find_domains(api, &domains);
  int own_products = 0;
  if (!status) status = has_setting(api, options, "auscult.own_products", &own_products);
  for (size_t i = own_products ? 1 : 0; i < DOMAINS && !status; i++) status = add_domain(api, options, domains[i]);
  return status;
}

// Name of the instruction set of this process; null: AUSCULT_NATIVE_SET names one that is not there.
EXPORT const char* auscult_native_set() {
  const InstructionSet* set = choose_set();
  return set ? set->name : nullptr;
}
