// Elementwise programs on vectors of the caller's, outside of graphs: the steps of optimisers, in place.
#include "program_run.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// A step may read an input at the same places as it writes an output there; a later one would read what was written.
bool is_overwritten(const Program& program, int input, int output) {
  for (size_t s = program.steps.size(); s > 0 && program.steps[s - 1].result != output; s--)
    for (int k = 0; k < program.steps[s - 1].kind->operands; k++)
      if (program.steps[s - 1].operands[k] == input) return true;
  return false;
}

bool place_values(ProgramRun& run, const float* const* inputs, const unsigned char* singles, float* const* outputs) {
  const Program& program = *run.program;
  for (size_t v = 0; v < program.values.size(); v++) {
    const auto [role, place] = program.values[v];
    if (role == Program::INPUT) run.places[v] = {(float*)inputs[place], !singles[place], singles[place] != 0};
    else if (role == Program::CONSTANT) run.places[v] = {(float*)&program.constants[place], 0, true};
    else if (role == Program::ROW) run.places[v] = {nullptr, place, false};
    else run.places[v] = {outputs[place], 1, false};
    for (int i = 0; role == Program::OUTPUT && i < program.inputs; i++)
      if (inputs[i] == outputs[place] && is_overwritten(program, i, v)) return false;
  }
  return true;
}

}  // namespace

// A program, which is never given back; null: the text is none, or it has sums.
EXPORT const void* auscult_native_read(const char* text) {
  const InstructionSet* set = choose_set();
  if (!text || !set) return nullptr;
  try {
    const Program* program = new Program(text, set->steps);
    return program->sums.empty() ? program : nullptr;
  } catch (...) {
    return nullptr;
  }
}

// Runs a program over `count` numbers of each input, of which those with a `single` are one number for all, into the
// outputs, which may be inputs. 0: done; else nothing was: it could not be run in place, or memory ran out.
EXPORT int auscult_native_apply(const void* program, const float* const* inputs, const unsigned char* singles,
                                float* const* outputs, int64_t count) {
  try {
    static thread_local ProgramRun run;
    run.begin(*(const Program*)program);
    run.count = count;
    if (!place_values(run, inputs, singles, outputs)) return 1;
    run.choose_stretch();
    run.choose_steps();
    run.part = count;
    run.run_part(0);
    return 0;
  } catch (...) {
    return 2;
  }
}
