# Takes out of LLVM's text what is of the compiler that wrote it: flags of the module, which others have with
# values of their own and then refuse to link, and the processor, without which functions are inlined anywhere.
# As lists of CMake cut lines that have brackets or semicolons, the text is one string here.
file(READ "${TEXT}" text)
string(REGEX REPLACE "\n!llvm\\.module\\.flags[^\n]*" "" text "${text}")
string(REGEX REPLACE "\n@llvm\\.(compiler\\.)?used[^\n]*" "" text "${text}")
string(REGEX REPLACE " \"(target-cpu|target-features|frame-pointer)\"=\"[^\"]*\"" "" text "${text}")
# Nothing in the library itself uses them.
string(REPLACE "linkonce_odr" "weak_odr" text "${text}")
file(WRITE "${TEXT}" "${text}")
