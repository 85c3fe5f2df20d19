// The products for the instruction set that the build names (CMakeLists.txt): SET its name, WIDTH its floats in a vector.
#include "products.inc.h"
