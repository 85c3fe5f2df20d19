// What the loops of recurrent layers are given, and what they give. T: steps, N: rows (samples), H: hidden units.
#pragma once

// What all loops have. `packed`: the recurrent weights as `pack` lays them out; `scratch`: count_scratch numbers.
struct Loop {
  long steps, rows, hidden;
  bool backwards;  // true: from the last step to the first
  const float* packed;
  float* scratch;
};

// gates = gx + h r'; i, o, f = sigmoid; m = tanh; c = f c_before + i m; h = o tanh(c).
struct Lstm {
  Loop loop;
  const float *h0, *c0;                // (N, H), the first states
  const float* gx;                     // (T, N, 4 H), the parts of the gates that come from the inputs
  float *last_h, *last_c;              // (N, H)
  float* iof;                          // (T, N, 3 H)
  float *m, *tanh_c, *before, *h;      // (T, N, H), `before`: c before the step
};

// total = dh + dy; u = dc + total o (1 - tanh(c)^2); gates = [u m i', total tanh(c) o', u before f', u i m'];
// dh_next = gates r; dc_next = u f. x' is the slope of a gate: x (1 - x), or 1 - x^2 of m.
struct LstmGradient {
  Loop loop;
  const float *dh, *dc;                        // (N, H), the adjoints of the last states
  const float* dy;                             // (T, N, H), those of h of all steps
  const float *iof, *m, *tanh_c, *before;      // as of the Lstm
  float *dh0, *dc0;                            // (N, H)
  float* gates;                                // (T, N, 4 H)
};

// gh = h r' + bh; z, r = sigmoid(gx + gh); m = tanh(gx_m + r gh_m); h = (1 - z) m + z h_before.
struct Gru {
  Loop loop;
  const float* h0;            // (N, H)
  const float* gx;            // (T, N, 3 H)
  const float* bh;            // (3 H,)
  float* last_h;              // (N, H)
  float* zr;                  // (T, N, 2 H)
  float *m, *ghm, *h;         // (T, N, H), `ghm`: gh of m
};

// total = dh + dy; gates = total [(before - m) z', (1 - z) m' gh_m r', (1 - z) m' r]: the adjoints of gh; those of gx
// have no r in the last one; dh_next = gates r + total z.
struct GruGradient {
  Loop loop;
  const float* dh;                         // (N, H)
  const float* dy;                         // (T, N, H)
  const float *zr, *m, *ghm, *before;      // as of the Gru; `before`: h before the step
  float* dh0;                              // (N, H)
  float *dgh, *dgx;                        // (T, N, 3 H)
};

// The loops of one instruction set. Rows are independent of each other: first ... last are those to compute.
struct Loops {
  long part;  // rows that a thread takes at once
  long (*count_packed)(long depth, long columns);
  void (*pack)(const float* b, long b_row, long b_column, long depth, long columns, float* packed);
  void (*lstm)(const Lstm&, long first, long last);
  void (*lstm_gradient)(const LstmGradient&, long first, long last);
  void (*gru)(const Gru&, long first, long last);
  void (*gru_gradient)(const GruGradient&, long first, long last);
};
