-- include: whole
-- `history` holds, for each minute that counts, "m<minute> <name>" -> a tally (see tally.lua), and
-- "m<minute>+" -> how many tasks were submitted. "open" lists the minutes that are not yet added to
-- everything longer (see fold.lua): "<newest that is> <minute> <minute> ...". A minute that was
-- added once takes no more, so what is counted is counted once, also when the clock is set back.
local LONGEST = 600

local function minute_in(open, now)
  local folded = tonumber(string.match(open or '', '^%d+') or '0')
  return math.max(math.floor(now / 60000), folded + 1)
end

-- The text of "open" with this minute in it, or nil if it is there.
local function with_minute(open, minute)
  open = open or '0'
  local text = whole(minute)
  if string.find(open .. ' ', ' ' .. text .. ' ', 1, true) then return nil end
  return open .. ' ' .. text
end

-- Count tasks that came into the queue. Where no child lives that adds minutes to what is longer,
-- the list would grow for ever: they are not counted then.
local function count_submitted(history, count, now)
  local minute = whole(math.floor(now / 60000))
  if redis.call('HINCRBY', history, 'm' .. minute .. '+', count) > count then return end
  local open = redis.call('HGET', history, 'open')
  if minute_in(open, now) > tonumber(minute) then return end
  local longer = with_minute(open, minute)
  if longer and #longer > LONGEST then
    redis.call('HDEL', history, 'm' .. minute .. '+')
  elseif longer then
    redis.call('HSET', history, 'open', longer)
  end
end
