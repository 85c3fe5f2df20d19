// The operators, as onnxruntime is told of them.
#pragma once

#include "runtime_api.h"

extern const runtime::Operator matmul, gemm;  // of ONNX
// of "auscult"
extern const runtime::Operator elementwise, lstm_loop, lstm_loop_gradient, gru_loop, gru_loop_gradient,
    conv_weight_gradient;
