"use strict";

// Formats the dates that Slack's <!date> tokens and message times ask for, in the person's own time zone.
const showDate = (() => {
  const days = 86_400_000;
  const part = (date, options) => new Intl.DateTimeFormat("en", options).format(date);

  function ordinal(day) {
    const tens = day % 100;
    if (tens >= 11 && tens <= 13) return day + "th";
    return day + ({ 1: "st", 2: "nd", 3: "rd" }[day % 10] || "th");
  }

  function nearby(date) {
    const midnight = (d) => new Date(d.getFullYear(), d.getMonth(), d.getDate()).getTime();
    const distance = Math.round((midnight(date) - midnight(new Date())) / days);
    return { "-1": "yesterday", 0: "today", 1: "tomorrow" }[distance];
  }

  const formats = {
    date: (d) => `${part(d, { month: "long" })} ${ordinal(d.getDate())}, ${d.getFullYear()}`,
    date_short: (d) => part(d, { month: "short", day: "numeric", year: "numeric" }),
    date_long: (d) => `${part(d, { weekday: "long" })}, ${formats.date(d)}`,
    date_num: (d) => [d.getFullYear(), d.getMonth() + 1, d.getDate()].map((n) => String(n).padStart(2, "0")).join("-"),
    date_pretty: (d) => nearby(d) || formats.date(d),
    date_short_pretty: (d) => nearby(d) || formats.date_short(d),
    date_long_pretty: (d) => nearby(d) || formats.date_long(d),
    time: (d) => part(d, { hour: "numeric", minute: "2-digit" }),
    time_secs: (d) => part(d, { hour: "numeric", minute: "2-digit", second: "2-digit" }),
  };

  return (unix, format) => {
    const date = new Date(unix * 1000);
    if (Number.isNaN(date.getTime())) return null;
    return format.replace(/\{([a-z_]+)\}/g, (token, name) => (formats[name] ? formats[name](date) : token));
  };
})();
