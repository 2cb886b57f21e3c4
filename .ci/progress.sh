# progress.sh: prints one line of progress, for the scripts in this folder. Uses only bash, because deps runs before
# anything is installed. On a terminal the line is redrawn in place; elsewhere a plain line is written every
# progress_period seconds.
progress_period=10
progress_width=80
progress_in_place=
progress_drawn=
progress_last=
if [ -t 1 ] && [ "${TERM:-dumb}" != dumb ]; then
  progress_in_place=1
  columns=$(stty size < /dev/tty 2> /dev/null | cut -d' ' -f2) || columns=
  [ "${columns:-0}" -gt 0 ] && progress_width=$columns
fi

# progress TEXT: may be called often. One column stays free, because a full line would wrap. It is no error if a line of
# progress cannot be written (>&-, a full disk).
progress() {
  if [ -n "$progress_in_place" ]; then
    [ "$progress_drawn" != "$1" ] || return 0
    printf '\r\033[K%s' "${1:0:progress_width - 1}" 2> /dev/null
    progress_drawn=$1
  elif [ -z "$progress_last" ] || [ $((SECONDS - progress_last)) -ge "$progress_period" ]; then
    printf '%s\n' "$1" 2> /dev/null
    progress_last=$SECONDS
  fi
}

# Removes the line from the screen, so that other output can be written.
progress_clear() {
  [ -z "$progress_drawn" ] || printf '\r\033[K'
  progress_drawn=
}

say() {
  progress_clear
  printf '%s\n' "$*"
}

complain() {
  progress_clear
  printf '%s\n' "$*" >&2
}

# duration SECONDS: 50 s, 3 min 20 s
duration() {
  if [ "$1" -lt 100 ]; then echo "$1 s"; else echo "$(($1 / 60)) min $(($1 % 60)) s"; fi
}
