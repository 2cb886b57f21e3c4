# Records the files of an installation, so that it can be uninstalled: PREFIX/share/ringsmith/manifest.txt has their
# paths, relative to the prefix, one per line. Installing over an older version removes the files that only the older
# version had.
#
#   cmake --install BUILD          runs this script last
#   cmake -DPREFIX=/a/folder -P manifest.cmake           removes the files that the manifest names, and the manifest
#
# Files that the manifest does not name, and folders that contain such files, are left in place.
cmake_policy(VERSION 3.22)
if(DEFINED PREFIX)
  set(TOP "$ENV{DESTDIR}${PREFIX}")
else()
  set(TOP "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
endif()
set(MANIFEST share/ringsmith/manifest.txt)

set(OLD)
if(EXISTS "${TOP}/${MANIFEST}")
  file(STRINGS "${TOP}/${MANIFEST}" OLD)
elseif(DEFINED PREFIX)
  message(FATAL_ERROR "${TOP}/${MANIFEST} is missing: give the PREFIX of 'make install'")
endif()

set(NEW)
if(NOT DEFINED PREFIX)
  foreach(FILE ${CMAKE_INSTALL_MANIFEST_FILES})
    file(RELATIVE_PATH FILE "${CMAKE_INSTALL_PREFIX}" "${FILE}")
    list(APPEND NEW "${FILE}")
  endforeach()
  list(APPEND NEW ${MANIFEST})
endif()

set(GONE ${OLD})
list(REMOVE_ITEM GONE ${NEW} "")
set(COUNT 0)
foreach(FILE ${GONE})
  if(IS_ABSOLUTE "${FILE}" OR "/${FILE}/" MATCHES "/\\.\\./")
    message(FATAL_ERROR "${TOP}/${MANIFEST} names '${FILE}', which is outside the prefix: it is not a ringsmith manifest")
  endif()
endforeach()
foreach(FILE ${GONE})
  if(EXISTS "${TOP}/${FILE}" OR IS_SYMLINK "${TOP}/${FILE}")
    file(REMOVE "${TOP}/${FILE}")
    math(EXPR COUNT "${COUNT} + 1")
  endif()
  # Removes folders that are now empty, from the bottom up, but not the prefix itself.
  get_filename_component(FOLDER "${FILE}" DIRECTORY)
  while(FOLDER AND IS_DIRECTORY "${TOP}/${FOLDER}" AND NOT IS_SYMLINK "${TOP}/${FOLDER}")
    file(GLOB LEFT LIST_DIRECTORIES TRUE "${TOP}/${FOLDER}/*" "${TOP}/${FOLDER}/.?*")
    list(FILTER LEFT EXCLUDE REGEX "/\\.\\.?$")
    if(LEFT)
      break()
    endif()
    file(REMOVE_RECURSE "${TOP}/${FOLDER}")
    get_filename_component(FOLDER "${FOLDER}" DIRECTORY)
  endwhile()
endforeach()

if(DEFINED PREFIX)
  message("${COUNT} files of ringsmith were removed from ${TOP}")
  return()
endif()
if(COUNT)
  message(STATUS "Removed: ${COUNT} files of the previous version")
endif()
list(SORT NEW)
list(JOIN NEW "\n" NEW)
file(WRITE "${TOP}/${MANIFEST}" "${NEW}\n")
