# Words of the command line that may come from other people, such as the name of a submission's folder. make expands
# $(...) in such a word whenever it uses or exports the word, so here the raw text replaces it. The commands get the
# words through the environment. This file is included first, because nothing may use the words earlier.
define LABS_WORD
override $(1) := $$(value $(1))
export $(1)
endef
$(foreach word,N SEED TEST UNSAFE SUBMISSION REPORTS ROUNDS MUTANT MOST,\
  $(if $(filter undefined,$(origin $(word))),,$(eval $(call LABS_WORD,$(word)))))
