// Tensors of float32 as onnxruntime hands them to an operator.
#pragma once

#include "axes.h"
#include "runtime_api.h"

// A status of onnxruntime's that is handed on.
struct Failed {
  runtime::Status* status;
};

inline void check(runtime::Status* status) {
  if (status) throw Failed{status};
}

struct Tensor {
  bool is_there = false;
  float* data = nullptr;
  Axes axes;
};

inline Axes read_axes(const runtime::Api* api, const runtime::Value* value) {
  runtime::Shape* shape = nullptr;
  check(runtime::get_shape(api, value, &shape));
  Axes found;
  size_t rank = 0;
  runtime::Status* status = runtime::get_rank(api, shape, &rank);
  const bool fits = rank <= Axes::MOST;
  if (!status && fits) status = runtime::get_sizes(api, shape, found.size, rank);
  runtime::release_shape(api, shape);
  check(status);
  if (!fits) throw Refused{"a tensor has more than 16 axes"};
  found.count = rank;
  for (size_t i = 0; i < rank; i++)
    if (found.size[i] < 0) throw Refused{"a tensor has an axis of negative size"};
  found.lay_out();
  return found;
}

// An input, which an optional one need not be.
inline Tensor read(const runtime::Api* api, const runtime::Context* context, size_t number) {
  const runtime::Value* value = nullptr;
  check(runtime::get_input(api, context, number, &value));
  if (!value) return {};
  Tensor found;
  found.is_there = true;
  found.axes = read_axes(api, value);
  check(runtime::get_data(api, value, &found.data));
  return found;
}

// Memory for an output.
inline float* write(const runtime::Api* api, runtime::Context* context, size_t number, const Axes& axes) {
  multiply_sizes(axes.numbers(), sizeof(float));
  runtime::Value* value = nullptr;
  check(runtime::get_output(api, context, number, axes.size, axes.count, &value));
  if (!value) throw Refused{"an output has no name"};
  float* data = nullptr;
  check(runtime::get_data(api, value, &data));
  return data;
}

