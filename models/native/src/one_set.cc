// What is computed with vectors, for the instruction set that the build names (CMakeLists.txt): SET is its name, WIDTH
// the floats of its vectors.
#include "products.inc.h"
#include "recurrent.inc.h"
#include "steps.inc.h"
#include "weight_gradient.inc.h"
