#include "hooks/document_writer.hpp"

#include <gtest/gtest.h>

namespace torch::comms::fr {
namespace {

template <class Writer>
std::string written() {
  Writer out;
  out.begin_map();
  out.key("list");
  out.begin_list();
  out.number(-1);
  out.flag(true);
  out.pair("a", "b");
  out.begin_list();
  out.end_list();
  out.end_list();
  out.key("time");
  out.time(0);
  out.key("real");
  out.real(0.5);
  out.end_map();
  return out.finish();
}

TEST(DocumentWriter, WritesJson) {
  EXPECT_EQ(written<JsonWriter>(), R"({"list":[-1,true,["a","b"],[]],"time":0,"real":0.5})");
}

// Text with zeros in it.
template <size_t N>
std::string bytes(const char (&text)[N]) {
  return {text, N - 1};
}

// Each opcode, as Python's pickletools names them.
TEST(DocumentWriter, WritesAPickle) {
  EXPECT_EQ(written<PickleWriter>(),
            bytes("\x80\x02}(") + bytes("X\x04\x00\x00\x00list") + bytes("](") +
                bytes("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\xff") + bytes("\x88") +
                bytes("X\x01\x00\x00\x00\x61") + bytes("X\x01\x00\x00\x00\x62") + bytes("\x86") +
                bytes("](e") + bytes("e") + bytes("X\x04\x00\x00\x00time") + bytes("N") +
                bytes("X\x04\x00\x00\x00real") + bytes("G\x3f\xe0\x00\x00\x00\x00\x00\x00") +
                bytes("u."));
}

template <class Writer>
std::string written_cut_text() {
  Writer out;
  out.begin_map();
  out.key("k\xc3");
  out.text("v\xc3");
  out.end_map();
  return out.finish();
}

// Of the 15 bytes of a thread's name the last may be half a character.
TEST(DocumentWriter, WritesNoHalfCharacters) {
  EXPECT_EQ(written_cut_text<JsonWriter>(), "{\"k\xef\xbf\xbd\":\"v\xef\xbf\xbd\"}");
  EXPECT_EQ(written_cut_text<PickleWriter>(),
            bytes("\x80\x02}(") + bytes("X\x04\x00\x00\x00k\xef\xbf\xbd") +
                bytes("X\x04\x00\x00\x00v\xef\xbf\xbd") + bytes("u."));
}

}  // namespace
}  // namespace torch::comms::fr
