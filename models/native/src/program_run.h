// One run of an elementwise program over vectors or tensors: a stretch of numbers goes through the whole program while
// it lies in the fastest cache.
#pragma once

#include <cstring>
#include <vector>

#include "program.h"
#include "sets.h"
#include "tensor.h"

// Numbers of a stretch: at least, and at most; and bytes of the fastest cache that all rows of a program may take.
constexpr long LEAST_STRETCH = 256, MOST_STRETCH = 2048, CACHE = 24 * 1024;

// Equal numbers one after the other that are a stretch, or several, of their own.
constexpr long LEAST_SPREAD = 256;

// Numbers that a thread takes at once.
constexpr long PART = 1 << 16;

// An input that is repeated: axes that have numbers one after the other, or the same number, are one.
struct Repeated {
  Axes axes;
  int row;      // where a stretch of it is written
  long period;  // numbers of the result after which all is the same again; 0: never
  bool spread;  // its last axis has the same number so often that a stretch needs no more than one

  // The first axis is the outermost; `step` is that of the input, 0 where it is repeated.
  void write(float* out, const float* from, long start, long count) const {
    if (spread) count = 1;
    int64_t index[Axes::MOST];
    for (size_t i = axes.count; i > 0; start /= axes.size[--i]) {
      index[i - 1] = start % axes.size[i - 1];
      from += index[i - 1] * axes.step[i - 1];
    }
    const size_t inner = axes.count - 1;
    while (count > 0) {
      const long rest = axes.size[inner] - index[inner], run = rest < count ? rest : count;
      if (axes.step[inner]) memcpy(out, from, run * sizeof(float));
      else
        for (long i = 0; i < run; i++) out[i] = *from;
      out += run, count -= run, from += run * axes.step[inner], index[inner] += run;
      for (size_t i = inner; i > 0 && index[i] == axes.size[i]; i--) {
        from += axes.step[i - 1] - index[i] * axes.step[i];
        index[i] = 0, index[i - 1]++;
      }
    }
  }
};

// Where a value lies: of a stretch that begins at `start`, at data + start * moves.
struct Place {
  float* data;
  long moves;
  bool single;  // one number for all places
};

// What a thread keeps from one call to the next, so that small calls need not ask for memory.
struct Workspace {
  std::vector<float> rows;
  std::vector<long> phases;
};

// A sum along the last axes: `length` numbers become one.
struct Row {
  float* data;
  long length;
};

// One run of a program.
struct ProgramRun {
  const Program* program = nullptr;
  std::vector<Tensor> inputs;
  std::vector<Place> places;       // of each value
  std::vector<Repeated> repeated;  // inputs that are written to rows before the steps
  std::vector<const float*> from;  // their numbers
  std::vector<Step> steps;
  std::vector<Row> sums;
  long count = 0, part = 0;     // numbers in all, and of a part
  long stretch = 0, spread = 0;  // numbers of a stretch at most; none goes beyond a multiple of the second
  float (*add_up)(const float*, long) = nullptr;

  void begin(const Program& its_program) {
    program = &its_program;
    inputs.resize(program->inputs), places.resize(program->values.size());
    repeated.clear(), from.clear(), steps.clear(), sums.clear(), spread = 0;
  }

  // As many numbers as the cache has room for; whole periods of what is repeated, where they fit, so that it is written
  // once.
  void choose_stretch() {
    const long rows = program->rows + (long)repeated.size() + 2;
    long most = CACHE / (long)sizeof(float) / rows / 64 * 64;
    most = most < LEAST_STRETCH ? LEAST_STRETCH : most > MOST_STRETCH ? MOST_STRETCH : most;
    long period = 1;
    for (const Repeated& one : repeated)
      if (!one.spread && one.period <= most && one.period > period) period = one.period;
    const long pieces = (spread + most - 1) / most;  // of equal size, but for whole vectors
    stretch = pieces ? (spread + pieces - 1) / pieces : most / period * period;
    part = PART / stretch * stretch;
    for (const Row& row : sums)  // of several rows each is a part of the longest
      if (part % row.length) part = (part + row.length - 1) / row.length * row.length;
  }

  void choose_steps() {
    for (const Program::Instruction& one : program->steps) {
      int singles = 0;
      for (int k = 0; k < one.kind->operands; k++) singles |= places[one.operands[k]].single << k;
      steps.push_back(one.kind->steps[singles]);
    }
    add_up = choose_set()->add_up;
  }

  void run_part(long number) const {
    static thread_local Workspace workspace;
    std::vector<long>& phases = workspace.phases;
    const size_t numbers = (program->rows + repeated.size()) * stretch;
    if (workspace.rows.size() < numbers) workspace.rows.resize(numbers);
    phases.assign(repeated.size(), -1);
    const long end = (number + 1) * part < count ? (number + 1) * part : count;
    for (long start = number * part, next; start < end; start = next) {
      next = start + stretch < end ? start + stretch : end;
      if (spread && next > start / spread * spread + spread) next = start / spread * spread + spread;
      run_stretch(start, next - start, workspace.rows.data(), phases);
    }
  }

  void run_stretch(long start, long numbers, float* memory, std::vector<long>& phases) const {
    for (size_t i = 0; i < repeated.size(); i++) {
      const long phase = repeated[i].period ? start % repeated[i].period : -1;
      if (phase < 0 || phase != phases[i])
        repeated[i].write(memory + repeated[i].row * stretch, from[i], start, numbers);
      phases[i] = numbers == stretch ? phase : -1;
    }
    for (size_t s = 0; s < steps.size(); s++) {
      const Program::Instruction& one = program->steps[s];
      const float* operands[OPERANDS];
      for (int k = 0; k < one.kind->operands; k++) operands[k] = find(one.operands[k], start, memory);
      steps[s](find(one.result, start, memory), operands, numbers);
    }
    for (size_t s = 0; s < sums.size(); s++) {
      const int operand = program->sums[s].operand;
      put_sum(sums[s], find(operand, start, memory), places[operand].single, start, numbers);
    }
  }

  // Adds a stretch to the sums of the rows that it is part of. A row is of one part, so only one thread adds to it.
  void put_sum(const Row& row, const float* from, bool single, long start, long numbers) const {
    for (long done = 0; done < numbers;) {
      const long at = (start + done) % row.length, rest = row.length - at;
      const long run = rest < numbers - done ? rest : numbers - done;
      const float found = single ? *from * run : add_up(from + done, run);
      float& sum = row.data[(start + done) / row.length];
      sum = at == 0 ? found : sum + found;
      done += run;
    }
  }

  // Rows have no place of their own: each thread has its memory for them.
  float* find(int value, long start, float* memory) const {
    const Place& place = places[value];
    return place.data ? place.data + start * place.moves : memory + place.moves * stretch;
  }
};
