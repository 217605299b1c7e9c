-- PURPOSE  Tie children to their parents, which are of this pool. Safe to repeat. An edge stays as
--          long as its parent's record: it holds that, and a resubmit finds the children by it.
-- KEYS     tasks records edges
-- ARGV     per edge: parent, "<child's pool>/<child>,<index>,<round>", 'm' where the parent may be
--          missing, or ''
-- RETURNS  {now ms, letters}: a letter an edge: 'p' the parent has not ended, 'e' it has, 'n' it is
--          unknown (nothing is stored then)
-- include: now
local tasks, records, edges = unpack(KEYS)
local now, count = now_ms(), #ARGV / 3
-- Edges of a parent lie in pages: fields "<parent>", "<parent>,1", ...; the first begins with how
-- many follow and how many edges the last has: "2,17 default/c1,1,0 ...".
local PAGE = 500
if count == 0 then return {now, ''} end

local function append(parent, added)
  local first = redis.call('HGET', edges, parent)
  local pages, size, head = string.match(first or '0,0', '^(%d+),(%d+)(.*)$')
  pages, size = tonumber(pages), tonumber(size)
  local page = pages == 0 and head or redis.call('HGET', edges, parent .. ',' .. pages) or ''
  local known, written = page .. ' ', {}
  for _, edge in ipairs(added) do
    if not string.find(known, ' ' .. edge .. ' ', 1, true) then
      if size == PAGE then
        if pages == 0 then head = page else
          written[#written + 1], written[#written + 2] = parent .. ',' .. pages, page
        end
        pages, size, page = pages + 1, 0, ''
      end
      size, page = size + 1, page .. ' ' .. edge
    end
  end
  if pages == 0 then head = page else
    written[#written + 1], written[#written + 2] = parent .. ',' .. pages, page
  end
  redis.call('HSET', edges, parent, pages .. ',' .. size .. head, unpack(written))
end

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('HDEL', edges, '')
local parents = {}
for i = 1, count do parents[i] = ARGV[3 * i - 2] end
local bodies, ended = redis.call('HMGET', tasks, unpack(parents)),
  redis.call('HMGET', records, unpack(parents))
local letters, order, tied = {}, {}, {}
for i, parent in ipairs(parents) do
  letters[i] = ended[i] and 'e' or (bodies[i] or ARGV[3 * i] == 'm') and 'p' or 'n'
  if letters[i] ~= 'n' then
    if not tied[parent] then
      tied[parent] = {}
      order[#order + 1] = parent
    end
    local added = tied[parent]
    added[#added + 1] = ARGV[3 * i - 1]
  end
end
for _, parent in ipairs(order) do append(parent, tied[parent]) end
return {now, table.concat(letters)}
