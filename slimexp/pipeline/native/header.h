// What a JPEG's header says, read without decoding anything.
#ifndef SLIMEXP_HEADER_H_
#define SLIMEXP_HEADER_H_

#include <cstddef>
#include <cstdint>

namespace slimexp {

struct Header {
  int height = 0;  // As stored, before the orientation is applied.
  int width = 0;
  int orientation = 1;  // EXIF's, 1..8; 1 when there is none or it is damaged.
};

// Reads the header of a JPEG that JpegDecoder takes: baseline or progressive, 8 bits, grey or three channels, with an
// end marker. Returns false for all else.
bool ReadHeader(const uint8_t* data, size_t size, Header* header);

}  // namespace slimexp

#endif  // SLIMEXP_HEADER_H_
