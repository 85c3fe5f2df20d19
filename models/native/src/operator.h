// An operator as onnxruntime is told of it: a kernel that is made of a node's attributes, and runs.
#pragma once

#include <new>
#include <string>

#include "tensor.h"

inline runtime::Status* get_attribute(const runtime::Api* api, const runtime::KernelInfo* info, const char* name,
                                      int64_t* found) {
  return runtime::get_integer(api, info, name, found);
}
inline runtime::Status* get_attribute(const runtime::Api* api, const runtime::KernelInfo* info, const char* name,
                                      float* found) {
  return runtime::get_float(api, info, name, found);
}

// False if there is no such attribute of this type.
template <typename Number>
bool has_attribute(const runtime::Api* api, const runtime::KernelInfo* info, const char* name, Number* found) {
  runtime::Status* status = get_attribute(api, info, name, found);
  if (status) runtime::release_status(api, status);
  return !status;
}

// True if there is an attribute of characters. To ask how many there are takes no memory.
inline bool has_string(const runtime::Api* api, const runtime::KernelInfo* info, const char* name) {
  size_t size = 0;
  runtime::Status* status = runtime::get_string(api, info, name, nullptr, &size);
  if (status) runtime::release_status(api, status);
  return !status;
}

// Reads an attribute where there is one. Nobody else has checked its type: another number, and characters, are refused;
// lists and tensors cannot be told from no attribute.
template <typename Other, typename Number>
void read_attribute(const runtime::Api* api, const runtime::KernelInfo* info, const char* name, Number* found) {
  Number value;
  Other other;
  if (has_attribute(api, info, name, &value)) *found = value;
  else if (has_attribute(api, info, name, &other) || has_string(api, info, name))
    throw Refused{"an attribute is not of its type"};
}

inline std::string read_string(const runtime::Api* api, const runtime::KernelInfo* info, const char* name) {
  size_t size = 0;
  check(runtime::get_string(api, info, name, nullptr, &size));
  std::string found(size, 0);
  check(runtime::get_string(api, info, name, found.data(), &size));
  return found;
}

// Calls `run`, and makes a status of what it throws: nothing else may reach onnxruntime.
template <typename Run>
runtime::Status* guard(const runtime::Api* api, Run run) noexcept {
  try {
    run();
    return nullptr;
  } catch (const Failed& failed) {
    return failed.status;
  } catch (const Refused& refused) {
    return runtime::create_status(api, refused.why);
  } catch (const std::bad_alloc&) {
    return runtime::create_status(api, "the native step ran out of memory");
  } catch (...) {
    return runtime::create_status(api, "the native step failed");
  }
}

// The operator of a kernel, which has
//   name(); INPUTS, of which the last OPTIONAL_INPUTS may be missing; OUTPUTS (of either -1: one or more); SINCE, the
//   version of its domain from which on it is this;
//   a constructor that takes (api, info), and run(context), which may both throw what `guard` knows.
template <typename Kernel>
struct Described {
  static runtime::Status* create(const runtime::Operator*, const runtime::Api* api, const runtime::KernelInfo* info,
                                 void** found) {
    return guard(api, [&] { *found = new Kernel(api, info); });
  }

  static runtime::Status* compute(void* kernel, runtime::Context* context) {
    const Kernel& k = *(const Kernel*)kernel;
    return guard(k.api, [&] { k.run(context); });
  }

  static size_t count(int number) { return number < 0 ? 1 : number; }

  static runtime::Operator describe() {
    using runtime::Operator;
    Operator one = {};
    one.version = runtime::VERSION;
    one.name = [](const Operator*) { return Kernel::name(); };
    one.provider = [](const Operator*) -> const char* { return nullptr; };  // the processor
    one.input_type = one.output_type = [](const Operator*, size_t) { return runtime::FLOAT; };
    one.inputs = [](const Operator*) { return count(Kernel::INPUTS); };
    one.outputs = [](const Operator*) { return count(Kernel::OUTPUTS); };
    one.input_presence = [](const Operator*, size_t number) {
      if (Kernel::INPUTS < 0) return runtime::VARIADIC;
      return (int)number < Kernel::INPUTS - Kernel::OPTIONAL_INPUTS ? runtime::REQUIRED : runtime::OPTIONAL;
    };
    one.output_presence = [](const Operator*, size_t) {
      return Kernel::OUTPUTS < 0 ? runtime::VARIADIC : runtime::REQUIRED;
    };
    for (auto& variadic : one.variadic) variadic = [](const Operator*) { return 1; };  // one at least, all of a type
    one.input_memory = [](const Operator*, size_t) { return 0; };
    one.create_or_fail = create;
    one.compute_or_fail = compute;
    one.destroy = [](void* kernel) { delete (Kernel*)kernel; };
    one.start_version = [](const Operator*) { return Kernel::SINCE; };
    one.end_version = [](const Operator*) { return 1000; };
    return one;
  }
};
