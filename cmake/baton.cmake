# The build's vocabulary: one target a folder, files listed, warnings are errors.
find_program(CCACHE ccache)
if(CCACHE)
  # One cache for every checkout: paths inside the tree count relative to it.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
endif()
find_package(Threads REQUIRED)
if(BATON_CUDA)
  set(CMAKE_CUDA_COMPILER ${BATON_NVCC})
  # CMake 3.25 knows neither 90a nor nvcc's C++20.
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  set(CMAKE_CUDA_FLAGS "-gencode=arch=compute_90a,code=sm_90a" CACHE STRING "Flags of nvcc")
  enable_language(CUDA)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  # Debian's CMake 3.25.1 sets a property of this library, which CUDA 13 no longer has.
  add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
  find_package(CUDAToolkit 13.0 REQUIRED)
endif()

add_library(baton_flags INTERFACE)
set(warnings -Wall -Wextra -Werror -Wno-missing-field-initializers)
target_compile_options(baton_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>"
  # -lineinfo costs nothing at run time and gives the profilers source lines.
  "$<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings;-lineinfo;-Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 sees overlaps and overruns inside std::string and std::vector that are not there (GCC bugs 105329, 105651).
  target_compile_options(baton_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-array-bounds;-Wno-stringop-overflow>")
endif()
target_include_directories(baton_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_link_libraries(baton_flags INTERFACE Threads::Threads)
if(BATON_SANITIZE)
  # g++ with UBSan or TSan reports maybe-uninitialised members that are not.
  target_compile_options(baton_flags INTERFACE -fsanitize=${BATON_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all -Wno-maybe-uninitialized)
  if(BATON_SANITIZE STREQUAL "undefined")
    target_compile_options(baton_flags INTERFACE -Wno-error)  # its checks stop `#pragma GCC unroll` from working
  endif()
  if(BATON_SANITIZE STREQUAL "thread")
    target_compile_options(baton_flags INTERFACE -Wno-tsan)  # Asio uses fences, which it does not follow
  endif()
  target_link_options(baton_flags INTERFACE -fsanitize=${BATON_SANITIZE})
endif()

# baton_library(NAME base SRCS a.cc b.cc DEPS fmt::fmt)
function(baton_library)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  add_library(baton_${ARG_NAME} STATIC ${ARG_SRCS})
  target_link_libraries(baton_${ARG_NAME} PUBLIC baton_flags ${ARG_DEPS})
endfunction()

# baton_program(NAME baton-worker SRCS main.cc DEPS baton_worker): an executable in <build>/bin
function(baton_program)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE baton_flags ${ARG_DEPS})
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endfunction()

# baton_test(NAME model_test SRCS a_test.cc b_test.cc DEPS baton_model): one doctest program a folder
function(baton_test)
  if(NOT BATON_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  if(NOT TARGET baton_doctest_main)
    add_library(baton_doctest_main OBJECT ${CMAKE_SOURCE_DIR}/tests/doctest_main.cc)
    target_link_libraries(baton_doctest_main PRIVATE baton_flags)
  endif()
  add_executable(${ARG_NAME} ${ARG_SRCS} $<TARGET_OBJECTS:baton_doctest_main>)
  target_link_libraries(${ARG_NAME} PRIVATE baton_flags ${ARG_DEPS})
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_compile_definitions(${ARG_NAME} PRIVATE BATON_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
endfunction()
