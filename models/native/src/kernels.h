// The operators, as onnxruntime is told of them.
#pragma once

#include "runtime_api.h"

extern const runtime::Operator matmul, gemm;  // of ONNX
extern const runtime::Operator elementwise;   // of "auscult"
