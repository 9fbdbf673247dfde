// The texts of tables/*.txt, compiled in.
#pragma once

#include <span>
#include <string_view>

namespace baton {

std::span<const std::string_view> shipped_gemm_tables();

}  // namespace baton
