# rosidl exports <pkg>::<pkg>__rosidl_generator_py with the folders of the Python and NumPy headers
# of the machine that built it. Nothing that uses those libraries from Python needs the folders,
# and CMake refuses to generate with an imported one that is missing.

# drop_missing_include_dirs(<package>...)
#
# Drop the folders that do not exist from the libraries of other packages, which is the case for
# ROS packages that come as Python wheels. Where every folder exists this changes nothing.
function(drop_missing_include_dirs)
  foreach(package IN LISTS ARGN)
    set(target ${package}::${package}__rosidl_generator_py)
    if(NOT TARGET ${target})
      continue()
    endif()
    get_target_property(folders ${target} INTERFACE_INCLUDE_DIRECTORIES)
    set(kept "")
    foreach(folder IN LISTS folders)
      # Generator expressions are resolved later and are kept as they are.
      if(EXISTS "${folder}" OR folder MATCHES "\\$<")
        list(APPEND kept "${folder}")
      endif()
    endforeach()
    set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${kept}")
  endforeach()
endfunction()

# do_not_export_include_dirs(<target>)
#
# Keep the folders of our own library for this build only. CMake also refuses to export folders
# inside the source tree, as those of a virtual environment made there are.
function(do_not_export_include_dirs target)
  get_target_property(folders ${target} INTERFACE_INCLUDE_DIRECTORIES)
  list(TRANSFORM folders REPLACE "^(/.*)$" "$<BUILD_INTERFACE:\\1>")
  set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${folders}")
endfunction()
