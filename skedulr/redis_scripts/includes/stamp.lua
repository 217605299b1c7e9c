-- Milliseconds as a msgpack uint64: what follows the envelope and each entry of a journal.
local function stamp(ms)
  local bytes = {}
  for i = 8, 1, -1 do
    bytes[i] = ms % 256
    ms = (ms - bytes[i]) / 256
  end
  return string.char(207, unpack(bytes))
end
