// What the gradient of the weights of a convolution is: gw (O, C, *kernel) = sum over samples b and positions p of
// gy[b, o, p] x[b, c, at(p, k)], for each group of channels.
#pragma once

// One axis of the windows. `before`: padding.
struct WindowAxis {
  long size, outputs, taps, stride, dilation, before;
};

struct WeightGradient {
  const float* x;   // (batch, groups * channels, high.size, wide.size)
  const float* gy;  // (batch, groups * outputs, high.outputs, wide.outputs)
  float* gw;        // (groups * outputs, channels, high.taps, wide.taps)
  long batch, groups, channels, outputs;  // of a group
  WindowAxis high, wide;
};
