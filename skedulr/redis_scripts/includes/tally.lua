-- include: whole
-- What is counted of runs, as one text of three parts:
-- "<runs> <succeeded> <dead> <cancelled> <expired> <retried> <crashed> <submitted>", then
-- "|<sum ms> <longest ms> <bucket>:<how many> ..." of the time waited, and the same of the time run.
-- A bucket is the position of the first bound above the time; statistics.py knows the same bounds.
local BOUNDS = {1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 1500, 2000,
  3000, 5000, 7000, 10000, 15000, 20000, 30000, 60000, 120000, 300000, 600000, 1800000, 3600000,
  10800000, 43200000}
local BUCKETS, COUNTS, RUNS, SUBMITTED = #BOUNDS + 1, 8, 1, 8
local PLACE = {s = 2, d = 3, c = 4, e = 5, r = 6, x = 7}

local function new_tally()
  return {counts = {0, 0, 0, 0, 0, 0, 0, 0}, waited = {sum = 0, longest = 0},
          ran = {sum = 0, longest = 0}}
end

local function add_time(times, ms, count)
  local bucket = BUCKETS
  for i, bound in ipairs(BOUNDS) do
    if ms < bound then
      bucket = i
      break
    end
  end
  times[bucket] = (times[bucket] or 0) + count
  times.sum, times.longest = times.sum + ms * count, math.max(times.longest, ms)
end

-- Add what a text of this form says; nil adds nothing.
local function add_times(times, text)
  local sum, longest, buckets = string.match(text, '^(%d+) (%d+)(.*)$')
  times.sum = times.sum + tonumber(sum)
  times.longest = math.max(times.longest, tonumber(longest))
  for bucket, count in string.gmatch(buckets, '(%d+):(%d+)') do
    bucket = tonumber(bucket)
    times[bucket] = (times[bucket] or 0) + tonumber(count)
  end
end

local function add_text(tally, text)
  local counts, waited, ran = string.match(text or '', '^([%d ]+)|([%d: ]+)|([%d: ]+)$')
  if not counts then return end
  local at = 0
  for count in string.gmatch(counts, '%d+') do
    at = at + 1
    tally.counts[at] = tally.counts[at] + tonumber(count)
  end
  add_times(tally.waited, waited)
  add_times(tally.ran, ran)
end

local function times_text(times)
  local parts = {whole(times.sum), whole(times.longest)}
  for bucket = 1, BUCKETS do
    if times[bucket] then parts[#parts + 1] = bucket .. ':' .. whole(times[bucket]) end
  end
  return table.concat(parts, ' ')
end

local function tally_text(tally)
  local parts = {}
  for at = 1, COUNTS do parts[at] = whole(tally.counts[at]) end
  return table.concat(parts, ' ') .. '|' .. times_text(tally.waited) .. '|' .. times_text(tally.ran)
end

-- Add `count` equal runs: how they ended (a letter of PLACE), times in ms or '-' where there is none.
local function add_runs(tally, letter, waited, ran, count)
  local at, counts = PLACE[letter], tally.counts
  counts[at] = counts[at] + count
  -- A crash is a run whose time nobody knows; a task that ended before it was started is none.
  if ran ~= '-' or letter == 'x' then counts[RUNS] = counts[RUNS] + count end
  if waited ~= '-' then add_time(tally.waited, tonumber(waited), count) end
  if ran ~= '-' then add_time(tally.ran, tonumber(ran), count) end
end
