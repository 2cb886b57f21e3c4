# Words of the command line that may be anybody's, such as the name of a submission's folder. make expands $(...) in
# such a word whenever it uses or exports the word, so here the raw text replaces it. The commands get the words through
# the environment. Included first, because nothing may use them earlier.
define LABS_WORD
override $(1) := $$(value $(1))
export $(1)
endef
$(foreach word,N SEED TEST UNSAFE SUBMISSION REPORTS ROUNDS MUTANT MOST,\
  $(if $(filter undefined,$(origin $(word))),,$(eval $(call LABS_WORD,$(word)))))
