// The few entries of onnxruntime's C interface that a library of operators needs.
//
// The interface is a table of functions to which every version only adds, so an entry is known by its place; so is the
// description of an operator, which is read as far as its version says (onnxruntime_c_api.h of onnxruntime, MIT
// licence). Both are asked for as of version 17, which every runtime since has. tests/native check the places against
// the onnxruntime that is installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace runtime {

constexpr uint32_t VERSION = 17;
constexpr int FLOAT = 1, FAILED = 1;
enum Presence : int { REQUIRED = 0, OPTIONAL = 1, VARIADIC = 2 };

struct Status;
struct SessionOptions;
struct Domain;
struct Value;
struct Shape;
struct KernelInfo;
struct Context;
struct ShapeContext;

struct Api {
  const void* entries[275];
};

struct ApiBase {
  const Api* (*get_api)(uint32_t version);
  const char* (*get_version)();
};

struct Operator {
  uint32_t version;
  void* (*create)(const Operator*, const Api*, const KernelInfo*);
  const char* (*name)(const Operator*);
  const char* (*provider)(const Operator*);
  int (*input_type)(const Operator*, size_t);
  size_t (*inputs)(const Operator*);
  int (*output_type)(const Operator*, size_t);
  size_t (*outputs)(const Operator*);
  void (*compute)(void*, Context*);
  void (*destroy)(void*);
  Presence (*input_presence)(const Operator*, size_t);
  Presence (*output_presence)(const Operator*, size_t);
  int (*input_memory)(const Operator*, size_t);
  int (*variadic[4])(const Operator*);
  Status* (*create_or_fail)(const Operator*, const Api*, const KernelInfo*, void**);
  Status* (*compute_or_fail)(void*, Context*);
  Status* (*infer_shape)(const Operator*, ShapeContext*);
  int (*start_version)(const Operator*);
  int (*end_version)(const Operator*);
  const void* later[8];  // not read at this version
};

// An entry of the table, as a function of its signature.
template <int PLACE, typename... Given>
inline Status* call(const Api* api, Given... given) {
  static_assert(PLACE < sizeof(Api::entries) / sizeof(void*));
  return ((Status * (*)(Given...)) api->entries[PLACE])(given...);
}

inline Status* create_status(const Api* api, const char* why) {
  return call<0, int, const char*>(api, FAILED, why);
}
inline Status* create_domain(const Api* api, const char* name, Domain** found) {
  return call<26, const char*, Domain**>(api, name, found);
}
inline Status* add_operator(const Api* api, Domain* domain, const Operator* one) {
  return call<27, Domain*, const Operator*>(api, domain, one);
}
inline Status* add_domain(const Api* api, SessionOptions* options, Domain* domain) {
  return call<28, SessionOptions*, Domain*>(api, options, domain);
}
inline Status* get_data(const Api* api, const Value* value, float** found) {
  return call<51, const Value*, void**>(api, value, (void**)found);
}
inline Status* get_rank(const Api* api, const Shape* shape, size_t* found) {
  return call<61, const Shape*, size_t*>(api, shape, found);
}
inline Status* get_sizes(const Api* api, const Shape* shape, int64_t* found, size_t rank) {
  return call<62, const Shape*, int64_t*, size_t>(api, shape, found, rank);
}
inline Status* get_shape(const Api* api, const Value* value, Shape** found) {
  return call<65, const Value*, Shape**>(api, value, found);
}
inline Status* get_float(const Api* api, const KernelInfo* info, const char* name, float* found) {
  return call<85, const KernelInfo*, const char*, float*>(api, info, name, found);
}
inline Status* get_integer(const Api* api, const KernelInfo* info, const char* name, int64_t* found) {
  return call<86, const KernelInfo*, const char*, int64_t*>(api, info, name, found);
}
// Its characters, with a 0 at the end; with null in place of `found`, only how many there are.
inline Status* get_string(const Api* api, const KernelInfo* info, const char* name, char* found, size_t* size) {
  return call<87, const KernelInfo*, const char*, char*, size_t*>(api, info, name, found, size);
}
inline Status* count_inputs(const Api* api, const Context* context, size_t* found) {
  return call<88, const Context*, size_t*>(api, context, found);
}
inline Status* count_outputs(const Api* api, const Context* context, size_t* found) {
  return call<89, const Context*, size_t*>(api, context, found);
}
inline Status* get_input(const Api* api, const Context* context, size_t number, const Value** found) {
  return call<90, const Context*, size_t, const Value**>(api, context, number, found);
}
inline Status* get_output(const Api* api, Context* context, size_t number, const int64_t* sizes, size_t rank,
                          Value** found) {
  return call<91, Context*, size_t, const int64_t*, size_t, Value**>(api, context, number, sizes, rank, found);
}
// Whether a session's settings have an entry of this name.
inline Status* has_setting(const Api* api, const SessionOptions* options, const char* name, int* found) {
  return call<237, const SessionOptions*, const char*, int*>(api, options, name, found);
}
inline Status* run_parts(const Api* api, const Context* context, void (*part)(void*, size_t), size_t count,
                         void* given) {
  return call<274, const Context*, void (*)(void*, size_t), size_t, size_t, void*>(api, context, part, count, 0,
                                                                                  given);
}
inline void release_status(const Api* api, Status* status) { ((void (*)(Status*))api->entries[93])(status); }
inline void release_shape(const Api* api, Shape* shape) { ((void (*)(Shape*))api->entries[99])(shape); }

inline void release_domain(const Api* api, Domain* domain) { ((void (*)(Domain*))api->entries[101])(domain); }

}  // namespace runtime
