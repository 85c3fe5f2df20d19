#include "program.h"

#include <locale.h>

#include <cstdlib>
#include <cstring>

#include "axes.h"

namespace {

constexpr long MOST_INPUTS = 1024, MOST_VALUES = 100000;

// Rows whose numbers are needed at the same time: what each thread keeps memory for.
constexpr int MOST_ROWS = 1024;

// Numbers are written with a point whatever the language of the process.
const locale_t PLAIN = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);

// Reads words and numbers of a text from left to right.
struct Reader {
  const char* at;

  void skip_blanks() {
    while (*at == ' ') at++;
  }

  bool is_end_of_line() {
    skip_blanks();
    return *at == '\n' || *at == 0;
  }

  void end_line() {
    if (!is_end_of_line()) throw Refused{"Elementwise: a line of the program has more words than its operator takes"};
    if (*at) at++;
  }

  bool take_word(const char* word) {
    const size_t length = strlen(word);
    if (strncmp(at, word, length) != 0 || (at[length] != ' ' && at[length] != '\n' && at[length] != 0)) return false;
    at += length;
    return true;
  }

  int take_number(long end) {
    skip_blanks();
    char* after = nullptr;
    const bool is_digit = *at >= '0' && *at <= '9';
    const long found = is_digit ? strtol(at, &after, 10) : -1;
    if (found < 0 || found >= end || (*after != ' ' && *after != '\n' && *after != 0))
      throw Refused{"Elementwise: the program reads a value that no line before has given"};
    at = after;
    return found;
  }

  int take_operand(const std::vector<Program::Value>& values) {
    const int found = take_number(values.size());
    if (values[found].role == Program::SUM) throw Refused{"Elementwise: a sum is an output, and no step reads it"};
    return found;
  }

  float take_float() {
    skip_blanks();
    char* after = nullptr;
    const bool is_blank = strchr(" \t\v\f\r\n", *at) != nullptr;  // or the end of the text
    const float found = is_blank ? 0 : strtof_l(at, &after, PLAIN);
    if (!after || after == at) throw Refused{"Elementwise: a constant of the program is no number"};
    at = after;
    return found;
  }
};

const StepKind* take_kind(Reader& reader, const StepKind* kinds) {
  for (; kinds->name; kinds++)
    if (reader.take_word(kinds->name)) return kinds;
  throw Refused{"Elementwise: the program has an operator that this version of auscult-native does not know"};
}

}  // namespace

Program::Program(const char* text, const StepKind* kinds) {
  Reader reader{text};
  if (!reader.take_word("Inputs")) throw Refused{"Elementwise: the program does not begin with its number of inputs"};
  inputs = reader.take_number(MOST_INPUTS + 1);
  for (int i = 0; i < inputs; i++) values.push_back({INPUT, i});
  for (reader.end_line(); !reader.take_word("Return"); reader.end_line()) {
    const int number = values.size();
    if (number >= MOST_VALUES) throw Refused{"Elementwise: the program is too long"};
    if (reader.take_word("Constant")) {
      values.push_back({CONSTANT, (int)constants.size()});
      constants.push_back(reader.take_float());
      continue;
    }
    if (reader.take_word("Sum")) {
      const int operand = reader.take_operand(values);
      sums.push_back({operand, reader.take_number(Axes::MOST + 1), -1});
      values.push_back({SUM, (int)sums.size() - 1});
      continue;
    }
    Instruction one = {take_kind(reader, kinds), {}, number};
    for (int k = 0; k < one.kind->operands; k++) one.operands[k] = reader.take_operand(values);
    values.push_back({ROW, -1});
    steps.push_back(one);
  }
  for (const int end = values.size(); !reader.is_end_of_line(); outputs++) {
    int number = reader.take_number(end);
    if (values[number].role == SUM) {
      if (sums[values[number].place].output >= 0) throw Refused{"Elementwise: a sum is returned twice"};
      sums[values[number].place].output = outputs;
      continue;
    }
    if (values[number].role != ROW) number = copy(number, kinds);
    values[number] = {OUTPUT, outputs};
  }
  for (const Sum& sum : sums)
    if (sum.output < 0) throw Refused{"Elementwise: a sum is not returned"};
  if (inputs == 0 || outputs == 0) throw Refused{"Elementwise: the program has no inputs, or returns nothing"};
  find_rows();
}

// The value of a step that does nothing: for an output that is no result, or is given twice.
int Program::copy(int value, const StepKind* kinds) {
  const int number = values.size();
  values.push_back({ROW, -1});
  Reader name{"Identity"};
  steps.push_back({take_kind(name, kinds), {value}, number});
  return number;
}

// Gives each result that is no output a row, which is free again after the last step that reads it.
void Program::find_rows() {
  std::vector<int> last(values.size(), -1), unused;
  for (size_t s = 0; s < steps.size(); s++)
    for (int k = 0; k < steps[s].kind->operands; k++) last[steps[s].operands[k]] = s;
  for (const Sum& sum : sums) last[sum.operand] = steps.size();
  for (size_t s = 0; s < steps.size(); s++) {
    for (int k = 0; k < steps[s].kind->operands; k++) {
      const int operand = steps[s].operands[k];
      if (values[operand].role == ROW && last[operand] == (int)s) unused.push_back(values[operand].place);
      if (last[operand] == (int)s) last[operand] = -1;  // once, if it is read twice here
    }
    Value& result = values[steps[s].result];
    if (result.role != ROW) continue;
    if (unused.empty()) unused.push_back(rows++);
    result.place = unused.back();
    unused.pop_back();
    if (last[steps[s].result] < 0) unused.push_back(result.place);  // nobody reads it
  }
  if (rows > MOST_ROWS) throw Refused{"Elementwise: the program needs more than 1,024 values at the same time"};
}
