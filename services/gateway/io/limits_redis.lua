-- One question of a gateway about one tenant or key, answered in one go: see core/allowance.py for its words.
-- KEYS: epoch, requests, tokens, streams. ARGV: the question as JSON. Answers JSON.
local WINDOW = 60

local ask = cjson.decode(ARGV[1])
local now_ms = ask.now_ms
if not now_ms then
  local time = redis.call('TIME')
  now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local slot = math.floor(now_ms / 1000)

-- Whoever has forgotten everything must be told first: a server that starts anew, or with another's data.
local epoch = redis.call('GET', KEYS[1])
if not epoch then
  local time = redis.call('TIME')
  epoch = time[1] .. '.' .. time[2]
  redis.call('SET', KEYS[1], epoch)
end
local answer = {epoch = epoch, now_ms = now_ms}
if ask.epoch ~= epoch then
  answer.stale = true
  return cjson.encode(answer)
end

-- Used in each slot that still counts; older ones are deleted.
local function counted(key)
  local slots, used, gone = {}, 0, {}
  local flat = redis.call('HGETALL', key)
  for at = 1, #flat, 2 do
    local number, count = tonumber(flat[at]), tonumber(flat[at + 1])
    if number < slot - WINDOW then
      gone[#gone + 1] = flat[at]
    else
      slots[number] = count
      used = used + count
    end
  end
  if #gone > 0 then
    redis.call('HDEL', key, unpack(gone))
  end
  return slots, used
end

local function add(key, slots, number, count)
  slots[number] = (slots[number] or 0) + count
  redis.call('HINCRBY', key, string.format('%.0f', number), string.format('%.0f', count))
end

local function free_at(slots, room, least)
  local numbers = {}
  for number in pairs(slots) do
    numbers[#numbers + 1] = number
  end
  table.sort(numbers)
  for _, number in ipairs(numbers) do
    room = room + slots[number]
    if room >= least then
      return number + WINDOW + 1
    end
  end
  return slot + WINDOW + 1
end

local function window(key, meter)
  local slots, used = counted(key)
  for text, count in pairs(meter.add or {}) do
    local number = math.min(tonumber(text), slot)
    if number >= slot - WINDOW then
      add(key, slots, number, count)
      used = used + count
    end
  end
  local room = meter.limit - used
  local granted = math.max(0, math.min(meter.want, room))
  local wait_ms = 0
  if granted < meter.least then
    granted = 0
    wait_ms = math.max(1, free_at(slots, room, meter.least) * 1000 - now_ms)
  end
  if granted > 0 then
    add(key, slots, slot, granted)
    used = used + granted
  end
  local reset_ms = 0
  for number, count in pairs(slots) do
    if count > 0 then
      reset_ms = math.max(reset_ms, (number + WINDOW + 1) * 1000 - now_ms)
    end
  end
  redis.call('EXPIRE', key, WINDOW + 2)
  return {granted = granted, used = used, wait_ms = wait_ms, reset_ms = reset_ms}
end

-- A field for each gateway: how many places it holds, and until when.
local function places(key, meter)
  local others = 0
  local flat = redis.call('HGETALL', key)
  for at = 1, #flat, 2 do
    local held, until_ms = string.match(flat[at + 1], '^(%d+) (%d+)$')
    if tonumber(until_ms) <= now_ms then
      redis.call('HDEL', key, flat[at])
    elseif flat[at] ~= ask.gateway then
      others = others + tonumber(held)
    end
  end
  local held = math.max(meter.used, math.min(meter.want, meter.limit - others))
  if held > 0 then
    redis.call('HSET', key, ask.gateway, string.format('%.0f %.0f', held, now_ms + ask.places_ms))
    redis.call('PEXPIRE', key, ask.places_ms)
  else
    redis.call('HDEL', key, ask.gateway)
  end
  return {held = held}
end

if ask.requests then
  answer.requests = window(KEYS[2], ask.requests)
end
if ask.tokens then
  answer.tokens = window(KEYS[3], ask.tokens)
end
if ask.streams then
  answer.streams = places(KEYS[4], ask.streams)
end
return cjson.encode(answer)
