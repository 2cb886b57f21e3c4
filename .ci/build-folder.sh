# build-folder.sh: ensures that a build folder belongs to this user and is used by one make at a time.

# own_folder FOLDER: creates it, or prints a line that says why it cannot be written to.
own_folder() {
  local top=${1%/*} foreign
  mkdir -p "$1" 2> /dev/null
  # After `sudo make`, some files belong to root, and a build by another user would fail halfway.
  foreign=$(find "$1" ! -user "$(id -u)" ! -writable ! -type l -print -quit 2> /dev/null)
  if [ "$(id -u)" != 0 ] && [ -n "$foreign" ]; then
    complain "make: '$foreign' belongs to $(stat -c %U "$foreign"): sudo chown -R $(id -un) '$top', then make again"
    return 1
  fi
  if [ ! -d "$1" ] || [ ! -w "$1" ]; then
    if [ -d "$top" ] && [ ! -w "$top" ] && [ ! -O "$top" ]; then
      complain "make: '$top' belongs to $(stat -c %U "$top"): sudo chown -R $(id -un) '$top', or make BUILD=/a/folder/of/yours"
    else
      complain "make: cannot write to '$top': make BUILD=/a/folder/of/yours ${GOALS:-}"
    fi
    return 1
  fi
}

# one_make FOLDER: locks the folder until this process ends. If another make holds the lock, waits for it, because two
# ninjas would write the same files.
one_make() {
  command -v flock > /dev/null || return 0
  { exec 9> "$1/.lock"; } 2> /dev/null || return 0
  flock --nonblock --conflict-exit-code 99 9
  [ $? -ne 99 ] && return 0  # locked, or the file system does not support locks
  say "make: waiting for another make in $1"
  flock 9
}
