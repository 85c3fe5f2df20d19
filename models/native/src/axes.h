// The axes of a tensor of float32: how long each is, and how far it is from one number to the next along it.
#pragma once

#include <cstdint>

static_assert(sizeof(long) == 8, "sizes and places are counted in 64 bits");

// Something that cannot be computed, in words for people.
struct Refused {
  const char* why;
};

inline int64_t multiply_sizes(int64_t a, int64_t b) {
  int64_t found;
  if (__builtin_mul_overflow(a, b, &found)) throw Refused{"a tensor has more numbers than can be counted"};
  return found;
}

struct Axes {
  static constexpr size_t MOST = 16;
  size_t count = 0;
  int64_t size[MOST] = {}, step[MOST] = {};

  void push(int64_t its_size, int64_t its_step) {
    if (count == MOST) throw Refused{"a tensor has more than 16 axes"};
    size[count] = its_size, step[count++] = its_step;
  }

  // Sizes and steps of an axis counted from the last one, which is 1; an axis that is not there has 1 and 0.
  int64_t size_from_end(size_t place) const { return place <= count ? size[count - place] : 1; }
  int64_t step_from_end(size_t place) const { return place <= count ? step[count - place] : 0; }

  bool is_empty() const {
    for (size_t i = 0; i < count; i++)
      if (size[i] == 0) return true;
    return false;
  }

  // The number of numbers.
  int64_t numbers() const {
    int64_t found = 1;
    for (size_t i = 0; i < count && !is_empty(); i++) found = multiply_sizes(found, size[i]);
    return is_empty() ? 0 : found;
  }

  // Sets the steps of a tensor whose numbers lie one after the other. One without numbers has none.
  void lay_out() {
    int64_t next = is_empty() ? 0 : 1;
    for (size_t i = count; i > 0; i--) step[i - 1] = next, next = multiply_sizes(next, size[i - 1]);
  }

  void swap(size_t i, size_t j) {
    const int64_t its_size = size[i], its_step = step[i];
    size[i] = size[j], step[i] = step[j];
    size[j] = its_size, step[j] = its_step;
  }

  void swap_last() {
    if (count > 1) swap(count - 2, count - 1);
  }
};
