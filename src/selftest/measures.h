// How far numbers are from others. NaN and infinities come out as NaN, which no bar lets through; so does a comparison
// with nothing but zeros, which could prove nothing.
#pragma once

#include <span>
#include <vector>

#include "adapter/parameters.h"

namespace patina {

// The larger; NaN where one of them is.
double larger(double a, double b);
// |got - expected|_2 / |expected|_2
double relative_error(std::span<const double> got, std::span<const double> expected);
// |got - expected| / |expected|
double relative_error(double got, double expected);
// The largest relative error of a parameter; got and expected are in the layout of the store's buffers.
double worst_parameter(const ParameterStore& store, std::span<const double> got, std::span<const double> expected);
// How many numbers are other bits (zeros of either sign are one).
double differences(std::span<const double> got, std::span<const double> expected);

std::vector<double> as_doubles(std::span<const float> numbers);

}  // namespace patina
