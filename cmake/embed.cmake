# Files that a program carries inside itself, so that it needs none at run time.
#
#   baton_embed(OUT embedded_files.cc FILES /=page/index.html /openapi.json=openapi.json)
#
# makes OUT, which defines embedded_files() of router/static_files.h: each file under the path it is served at, with the content
# type of its extension. Called as `cmake -DOUT=... -DFILES=... -P embed.cmake` it writes OUT.
set(content_type_html "text/html; charset=utf-8")
set(content_type_js "text/javascript; charset=utf-8")
set(content_type_css "text/css; charset=utf-8")
set(content_type_json "application/json")
set(content_type_svg "image/svg+xml")
set(content_type_png "image/png")

function(baton_embed)
  cmake_parse_arguments(ARG "" "OUT" "FILES" ${ARGN})
  set(sources ${ARG_FILES})
  list(TRANSFORM sources REPLACE "^[^=]*=" "${CMAKE_CURRENT_SOURCE_DIR}/")
  string(REPLACE ";" "," files "${ARG_FILES}")  # a list would fall apart in the command
  add_custom_command(OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${ARG_OUT}
    COMMAND ${CMAKE_COMMAND} -DOUT=${CMAKE_CURRENT_BINARY_DIR}/${ARG_OUT} -DFILES=${files} -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${sources} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} VERBATIM)
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE)
  return()
endif()
string(REPLACE "," ";" FILES "${FILES}")
set(arrays "")
set(rows "")
set(index 0)
foreach(pair IN LISTS FILES)
  string(REGEX MATCH "^([^=]*)=(.*[.]([a-z]+))$" matched "${pair}")
  set(path "${CMAKE_MATCH_1}")
  set(file "${CMAKE_MATCH_2}")
  set(type "${content_type_${CMAKE_MATCH_3}}")
  if(type STREQUAL "")
    message(FATAL_ERROR "baton_embed: got ${pair}, want PATH=FILE with a known extension (cmake/embed.cmake)")
  endif()
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "constexpr unsigned char kBytes${index}[] = {${bytes}};\n")
  string(APPEND rows "    {\"${path}\", \"${type}\", {reinterpret_cast<const char*>(kBytes${index}), sizeof(kBytes${index})}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUT} "// Made by cmake/embed.cmake.
#include \"router/static_files.h\"

namespace baton {
namespace {

${arrays}
const StaticFile kFiles[] = {
${rows}};

}  // namespace

std::span<const StaticFile> embedded_files() {
  return kFiles;
}

}  // namespace baton
")
