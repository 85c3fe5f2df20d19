// Functions of a vector of float32, for one instruction set. Included with SET and WIDTH defined.
//
// Polynomials are those of S. Moshier's Cephes (exp, log) and of N. Juffa (erf), and tanh is the rational function of
// Eigen. Units of the last place that they are off at most, in tests/native: exp, log and erf 2, sigmoid 4, tanh 7. NaN
// gives NaN.
#pragma once

namespace SET {

typedef float Vector __attribute__((vector_size(WIDTH * 4), aligned(4)));
typedef int Places __attribute__((vector_size(WIDTH * 4)));

#define INLINE static inline __attribute__((always_inline))

INLINE Vector spread(float x) { return x - Vector{}; }
INLINE Vector as_floats(Places x) { return (Vector)x; }
INLINE Places as_bits(Vector x) { return (Places)x; }

// Where `where` is true (all bits set), x, else y.
INLINE Vector select(Places where, Vector x, Vector y) { return where ? x : y; }

INLINE Vector absolute(Vector x) { return as_floats(as_bits(x) & 0x7fffffff); }
INLINE Vector with_sign_of(Vector x, Vector sign) { return as_floats(as_bits(x) | (as_bits(sign) & (int)0x80000000)); }

template <int COUNT>
INLINE Vector polynomial(Vector x, const float (&factors)[COUNT]) {
  Vector sum = spread(factors[0]);
  for (int i = 1; i < COUNT; i++) sum = sum * x + factors[i];
  return sum;
}

// x with a NaN left as it is.
INLINE Vector limit(Vector x, float least, float most) {
  x = select(x < least, spread(least), x);
  return select(x > most, spread(most), x);
}

// e^x: 2^n e^r, with r at most half of log 2. 2^n in two factors, since n goes beyond what one number can have.
INLINE Vector exponential(Vector x) {
  x = limit(x, -104, 89);
  constexpr float ROUND = 12582912;  // 1.5 * 2^23: to add it rounds to an integer
  const Vector rounded = x * 1.44269504088896341f + ROUND, n = rounded - ROUND;
  const Vector r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  const Vector p = polynomial(r, {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                                  1.6666665459e-1f, 5.0000001201e-1f}) * r * r + r + 1.0f;
  const Places whole = as_bits(rounded) - 0x4b400000, half = whole >> 1;
  return p * as_floats((half + 127) << 23) * as_floats((whole - half + 127) << 23);
}

// Natural logarithm: of the exponent, and of a mantissa between sqrt(1/2) and sqrt(2).
INLINE Vector logarithm(Vector x) {
  const Places tiny = x < 1.17549435e-38f;
  const Vector scaled = select(tiny, x * 8388608.0f, x);  // 2^23: no denormal number is left
  const Places shifted = as_bits(scaled) - 0x3f3504f3, exponent = shifted >> 23;
  const Vector m = as_floats((shifted & 0x007fffff) + 0x3f3504f3) - 1.0f;
  const Vector n = __builtin_convertvector(exponent, Vector) - select(tiny, spread(23), spread(0));
  const Vector z = m * m;
  const Vector p = polynomial(m, {7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f,
                                  1.4249322787e-1f, -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f,
                                  3.3333331174e-1f}) * m * z;
  Vector found = m + (p + n * -2.12194440e-4f - 0.5f * z) + n * 0.693359375f;
  const float infinite = __builtin_inff();
  found = select(x == infinite, spread(infinite), found);
  found = select(x == 0.0f, spread(-infinite), found);
  return select(x < 0.0f, spread(__builtin_nanf("")), select(x != x, x, found));
}

INLINE Vector sigmoid(Vector x) { return 1.0f / (1.0f + exponential(-x)); }

INLINE Vector hyperbolic_tangent(Vector x) {
  constexpr float ENOUGH = 9.01091385f;  // from which on 1 is nearest
  const Vector y = limit(x, -7.90531110763549805f, 7.90531110763549805f), z = y * y;
  const Vector above = polynomial(z, {-2.76076847742355e-16f, 2.00018790482477e-13f, -8.60467152213735e-11f,
                                      5.12229709037114e-08f, 1.48572235717979e-05f, 6.37261928875436e-04f,
                                      4.89352455891786e-03f});
  const Vector below = polynomial(z, {1.19825839466702e-06f, 1.18534705686654e-04f, 2.26843463243900e-03f,
                                      4.89352518554385e-03f});
  const Vector found = select(absolute(x) < 4e-4f, x, y * above / below);
  return select(absolute(x) < ENOUGH, found, select(x != x, x, with_sign_of(spread(1), x)));
}

// Below 0.921875 a polynomial; above 1 - e^-p(|x|).
INLINE Vector error_function(Vector x) {
  const Vector a = absolute(x), size = select(a > 3.925f, spread(3.925f), a), z = x * x;
  const Vector small = x + x * polynomial(z, {-5.99104969e-4f, 4.99339588e-3f, -2.67667342e-2f, 1.12818025e-1f,
                                              -3.76124859e-1f, 1.28379151e-1f});
  const Vector p = polynomial(size, {1.72948930e-5f, -3.83208680e-4f, 3.88393435e-3f, -2.42545605e-2f,
                                     1.06777847e-1f, 6.34846687e-1f, 1.28717512e-1f}) * size + size;
  return select(a <= 0.921875f, small, with_sign_of(1.0f - exponential(-p), x));
}

}  // namespace SET
