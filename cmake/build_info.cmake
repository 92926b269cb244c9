# Writes OUTPUT from TEMPLATE when its content changes. Run by every build.
find_program(git git)
set(COMMIT "unknown")
# The folder of an unpacked source archive may lie inside somebody else's repository.
if(git AND EXISTS "${SOURCE_DIR}/.git")
  execute_process(COMMAND "${git}" -C "${SOURCE_DIR}" describe --always --dirty --exclude=*
    OUTPUT_VARIABLE described ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status)
  if(status EQUAL 0)
    set(COMMIT "${described}")
  endif()
endif()
list(TRANSFORM BACKENDS REPLACE "(.+)" "\"\\1\"")
list(JOIN BACKENDS ", " BACKENDS)
configure_file("${TEMPLATE}" "${OUTPUT}" @ONLY)
